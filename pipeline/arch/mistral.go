package arch

// describeMistral describes Mistral 7B and its successors, and Ministral: Llama without biases, with an independent
// head_dim. With a sliding_window, 4096 by default and none if null, the layers that layer_types names have that
// window; by default all.
func describeMistral(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, rope := b.heads(0), readRope(c)
	w := b.window(4096)
	windows := b.windows(w, always(w))
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, false, false)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}
