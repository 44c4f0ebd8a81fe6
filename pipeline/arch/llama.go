package arch

// describeLlama describes Llama 2 and 3, and the many models trained with the same code (SmolLM2, TinyLlama).
// attention_bias adds biases to q, k, v and o, mlp_bias to the three matrices of the MLP.
func describeLlama(c *Config) (*Decoder, error) {
	return finishLlama(begin(c, "rms_norm_eps", 0), 0)
}

// finishLlama describes a model with Llama's layers; dim is the default of head_dim.
func finishLlama(b *builder, dim int) (*Decoder, error) {
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, mlpBias := b.heads(dim), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := readRope(b.Config)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, mlpBias))
	})
}
