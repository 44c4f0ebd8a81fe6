package arch

// describeStarcoder2 describes Starcoder2, which has LayerNorms with biases, an ungated MLP (tanh form of GELU), and
// biases everywhere unless use_bias is false. With sliding_window, every layer has a window.
func describeStarcoder2(c *Config) (*Decoder, error) {
	b := begin(c, "norm_epsilon", 1e-5)
	b.centered, b.normBias = true, true
	b.tied(true)
	b.geluKeys("hidden_act", GELUTanh)
	b.Only("mlp_type", `"default"`)
	b.Only("norm_type", `"layer_norm"`)
	b.Inert("embedding_dropout", "residual_dropout", "rms_norm_eps")
	a, bias, rope := b.heads(0), b.Bool("use_bias", true), readRope(c)
	window := b.window(0)
	windows := b.spread(window, always(window))
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.preNorm(p, x, b.plainMLP(p+"mlp.c_fc", p+"mlp.c_proj", b.intermediate, bias))
	})
}
