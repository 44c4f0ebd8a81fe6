package arch

// describeCWM describes Meta's Code World Model: Llama without biases in attention. All layers have a sliding window
// except every fourth, beginning with the first, or those that layer_types names. By default, frequencies are scaled by
// llama3's rule.
func describeCWM(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Only("attention_bias", "false")
	a, bias := b.heads(128), b.Bool("mlp_bias", false)
	rope := ropeRules{theta: 1e6, missing: ropeParams{
		kind: "llama3", theta: 1e6, factor: 16, low: 1, high: 4, original: 8192,
	}}.read(c)
	windows := b.windows(b.window(8192), func(i int) bool { return i%4 != 0 })
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, false, false)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, bias))
	})
}
