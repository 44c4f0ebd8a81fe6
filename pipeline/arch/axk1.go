package arch

import "regexp"

// describeAXK1 describes A.X-K1: DeepSeek V3 with these differences: q_lora_rank is required, mixtures end with a
// norm (post_mlp_layernorm), and the router may lack the correction. mlp_layer_types lists the mixtures; by default
// they are the layers from first_k_dense_replace on whose index is divisible by moe_layer_freq. Dense layers may have
// the norm, too; it is not used.
func describeAXK1(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("AXK1Config", "AXK1Model", "AXK1ForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	if b.Null("q_lora_rank") {
		b.Wrong("q_lora_rank", "null is not allowed")
	}
	a, rope := deepSeek{}.attention(b), readRope(c)
	bias, interleaved := b.Bool("attention_bias", false), b.Bool("rope_interleave", true)
	a.scaleBy(rope)
	g := b.groupedKeys(groupedKeys{
		experts: 192, topK: 8, intermediate: 2048, shared: 1, dense: 1, groups: 8, topGroups: 4, normalize: true, scale: 2.5,
	})
	step := b.Range("moe_layer_freq", 1, maxLayers, 1)
	types := b.layerTypesOf("mlp_layer_types", "dense", "sparse")
	sparse := func(i int) bool {
		if types != nil {
			return types[i] == "sparse"
		}
		return i >= g.dense && i%step == 0
	}
	b.Inert("ep_size")
	b.skipDrafts("num_nextn_predict_layers")
	shape := Attention{Heads: a.Heads, HeadDim: a.NopeDim + a.RopeDim}
	return b.finish(&shape, func(i int, p string) Layer {
		const norm = "post_mlp_layernorm"
		x := b.latent(a, p+"self_attn.", rope, bias, interleaved)
		if !sparse(i) {
			b.skip("unused norm of a dense layer", false, `^`+regexp.QuoteMeta(p+norm+".weight")+`$`)
			return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
		}
		e := b.mixture(g, p+"mlp.")
		if _, ok := b.Tensor(e.Correction.Tensor); !ok {
			e.Correction = Weight{}
		}
		layer := b.preNorm(p, x, e)
		layer[1].PostNorm = b.norms(p + norm)
		return layer
	})
}
