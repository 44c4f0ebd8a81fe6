package arch

// describeQwen2 describes Qwen 1.5, 2 and 2.5: q, k and v always have biases, o never. With use_sliding_window, the
// layers from max_window_layers on, or those that layer_types names, have a sliding_window.
func describeQwen2(c *Config) (*Decoder, error) {
	return finishQwen2(begin(c, "rms_norm_eps", 0), ropeRules{})
}

func finishQwen2(b *builder, rules ropeRules) (*Decoder, error) {
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, rope := b.heads(0), rules.read(b.Config)
	windows := b.switchedWindows()
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, true, false)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}
