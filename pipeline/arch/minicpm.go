package arch

import "math"

// describeMiniCPM describes MiniCPM 1, 2 and 4: Llama with three multipliers,
//
//	h = scale_emb · Embedding[token]
//	h += scale_depth / sqrt(num_hidden_layers) · Block(Norm(h))
//	logits = Head · FinalNorm(h) / (hidden_size / dim_model_base)
//
// as in the code of the checkpoints (configuration_minicpm.py). The class is not in transformers. Experts and sparse
// attention of later models are rejected.
func describeMiniCPM(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("MiniCPMConfig", "MiniCPMModel", "MiniCPMForCausalLM")
	b.tied(true)
	b.mlpKeys("hidden_act", "silu")
	b.Only("num_experts", "0")
	b.Only("sparse_config")
	b.Inert("mup_denominator") // training
	scale := b.miniCPMScales(1, 1, 1)
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), readRope(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return scaled(scale, b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false)))
	})
}

// miniCPMScales reads the multipliers of embeddings and logits, and returns that of branches. The arguments are the
// defaults; a depth of 0 stands for the root of num_hidden_layers, a base of 0 for hidden_size.
func (b *builder) miniCPMScales(embedding, depth, base float64) float64 {
	read := func(key string, missing, zero float64) float64 {
		if f, ok := b.OptFloat(key, minMultiplier, maxMultiplier); ok {
			return f
		}
		if missing == 0 || b.Null(key) {
			return zero
		}
		return missing
	}
	root := math.Sqrt(float64(b.layers))
	b.d.EmbeddingScale = orZero(read("scale_emb", embedding, 1))
	b.d.LogitScale = orZero(read("dim_model_base", base, float64(b.d.Hidden)) / float64(b.d.Hidden))
	return orZero(read("scale_depth", depth, root) / root)
}

// scaled sets the multiplier of all branches of a layer.
func scaled(by float64, l Layer) Layer {
	for i := range l {
		l[i].Scale = by
	}
	return l
}
