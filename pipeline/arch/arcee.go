package arch

// describeArcee describes AFM: Llama with an ungated MLP (squared ReLU).
func describeArcee(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "relu2")
	b.activation = ReLU2
	a, bias, mlpBias := b.heads(0), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := readRope(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.plainMLP(p+"mlp.up_proj", p+"mlp.down_proj", b.intermediate, mlpBias))
	})
}
