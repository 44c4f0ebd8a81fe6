package arch

// describeGemma2 describes Gemma 2: Gemma with norms after the blocks, too, scores divided by
// sqrt(query_pre_attn_scalar) and bounded by attn_logit_softcapping, logits bounded by final_logit_softcapping, and a
// sliding_window in the layers that layer_types names, by default every other layer beginning with the first.
func describeGemma2(c *Config) (*Decoder, error) {
	b := beginGemma(c, "false")
	b.mlpKeys("hidden_activation", "gelu_pytorch_tanh")
	b.Only("hidden_act", `"gelu_pytorch_tanh"`)
	a, bias, rope := b.heads(256), b.Bool("attention_bias", false), readRope(c)
	b.scoreScale(&a)
	a.Cap, b.d.LogitCap = b.cap("attn_logit_softcapping", 50), b.cap("final_logit_softcapping", 30)
	w := b.window(4096)
	b.same(float64(w), "sliding_window_size")
	windows := b.windows(w, everyNth(2))
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.fourNorms(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}
