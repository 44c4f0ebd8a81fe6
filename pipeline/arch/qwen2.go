package arch

// Qwen2 is Qwen 1.5, 2 and 2.5: always biases on q, k and v, never on o. Sliding windows are refused.
type Qwen2 struct{}

// Architectures implements [Family].
func (Qwen2) Architectures() []string { return []string{"Qwen2ForCausalLM"} }

// Describe implements [Family].
func (Qwen2) Describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 0)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, rope := b.heads(0), readRope(c)
	refuseWindows(b)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, true, false)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// refuseWindows reads the keys of sliding windows and refuses what would make a layer use one. With
// use_sliding_window false, transformers ignores sliding_window and max_window_layers.
func refuseWindows(b *builder) {
	b.take("sliding_window")
	b.take("max_window_layers")
	if b.Bool("use_sliding_window", false) {
		b.Refuse("use_sliding_window", "true is not supported, only false")
	}
	b.layerTypes("full_attention")
}
