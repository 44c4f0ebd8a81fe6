package arch

// describeNemotron describes Nemotron 3 and 4 and Minitron: LayerNorms whose checkpoints store gamma - 1, rotation of a
// part of every head (partial_rotary_factor, by default 0.5), and an ungated MLP (squared ReLU). attention_bias adds
// biases to q, k, v and o, mlp_bias to the MLP.
func describeNemotron(c *Config) (*Decoder, error) {
	b := begin(c, "norm_eps", 1e-5)
	b.centered, b.normBias, b.onePlus = true, true, true
	b.tied(false)
	b.mlpKeys("hidden_act", "relu2")
	b.activation = ReLU2
	b.Inert("rms_norm_eps")
	a, bias, mlpBias := b.heads(0), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := ropeRules{partial: .5}.read(c)
	b.same(rope.partial, "rope_percent") // in published files, not read by the class
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.plainMLP(p+"mlp.up_proj", p+"mlp.down_proj", b.intermediate, mlpBias))
	})
}
