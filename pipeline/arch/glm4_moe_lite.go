package arch

import "slices"

// describeGLM4MoeLite describes GLM-4.7 Flash: the attention of DeepSeek-V3, and its mixtures in the layers that
// mlp_layer_types calls sparse, by default all but the first.
func describeGLM4MoeLite(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a := b.latentKeys(LatentAttention{QRank: 768, KVRank: 512, NopeDim: 192, RopeDim: 64, ValueDim: 256})
	b.same(float64(a.RopeDim), "head_dim") // another name of qk_rope_head_dim
	rope, bias, interleaved := readRope(c), b.Bool("attention_bias", false), b.Bool("rope_interleave", true)
	a.scaleBy(rope)
	types := b.layerTypesOf("mlp_layer_types", "dense", "sparse")
	dense := 1
	if types != nil {
		if dense = slices.Index(types, "sparse"); dense < 0 {
			dense = len(types)
		}
	}
	g := b.groupedKeys(groupedKeys{
		experts: 64, topK: 4, intermediate: 1536, shared: 1, dense: dense, groups: 1, topGroups: 1, normalize: true, scale: 1.8,
	})
	g.dense = dense // only mlp_layer_types counts
	b.same(float64(dense), "first_k_dense_replace")
	b.skipDrafts("num_nextn_predict_layers", "num_mtp_layers")
	shape := Attention{Heads: a.Heads, HeadDim: a.NopeDim + a.RopeDim}
	return b.finish(&shape, func(i int, p string) Layer {
		x := b.latent(a, p+"self_attn.", rope, bias, interleaved)
		if i > dense && types != nil && types[i] == "dense" {
			return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
		}
		return b.preNorm(p, x, b.groupedBlock(g, i, p+"mlp."))
	})
}
