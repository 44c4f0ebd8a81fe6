package arch

// describeHelium describes Llama with interleaved rotary pairs and heads of 128 elements; o never has a bias.
func describeHelium(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-8)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, mlpBias := b.heads(128), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := ropeRules{theta: 100000}.read(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, false)
		x.Rope = b.rope(rope, a.HeadDim)
		b.interleaved(x, bias)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, mlpBias))
	})
}
