package arch

// Qwen2 is Qwen 1.5, 2 and 2.5: q, k and v always have biases, o never. With use_sliding_window, the layers from
// max_window_layers on, or those that layer_types names, have a sliding_window.
type Qwen2 struct{}

// Architectures implements [Family].
func (Qwen2) Architectures() []string { return []string{"Qwen2ForCausalLM"} }

// Describe implements [Family].
func (Qwen2) Describe(c *Config) (*Decoder, error) {
	return describeQwen2(begin(c, "rms_norm_eps", 0), ropeRules{})
}

func describeQwen2(b *builder, rules ropeRules) (*Decoder, error) {
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
