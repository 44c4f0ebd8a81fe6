package arch

// gemma3 is the text model of Gemma 3: the layers of Gemma2 without bounds on scores, and with every head of q and k
// normalized before rotation. All layers but every sixth (sliding_window_pattern), or those that layer_types names,
// have a sliding_window and their own rotary base (rope_local_base_freq). In a multimodal model, which is inner, logits
// are unbounded, too.
//
// With use_bidirectional_attention it is an encoder (EmbeddingGemma): a token attends to all others, in a layer that slides to
// sliding_window/2 on either side.
type gemma3 struct{ inner bool }

func (f gemma3) describe(c *Config) (*Decoder, error) {
	b := beginGemma(c)
	both := false
	if f.inner {
		b.Only("use_bidirectional_attention", "false")
	} else {
		both = b.Bool("use_bidirectional_attention", false)
	}
	b.mlpKeys("hidden_activation", "gelu_pytorch_tanh")
	b.Only("hidden_act", `"gelu_pytorch_tanh"`)
	a, bias := b.heads(256), b.Bool("attention_bias", false)
	full, sliding := readByType(b.Config, ropeRules{theta: 1e6}, ropeRules{theta: 1e4}, "rope_theta", "rope_local_base_freq")
	b.scoreScale(&a)
	if f.inner {
		b.Only("final_logit_softcapping") // transformers 5 does not read it, some versions of 4 do
	}
	b.d.LogitCap = b.cap("final_logit_softcapping", 0)
	b.Only("attn_logit_softcapping") // ignored by transformers, but probably not on purpose
	every := b.Range("sliding_window_pattern", 1, maxLayers, 6)
	if b.Has("layer_types") {
		b.Inert("_sliding_window_pattern")
	} else {
		b.same(float64(every), "_sliding_window_pattern")
	}
	slides := everyNth(every)
	if types := b.layerTypes(fullAttention, slidingAttention); types != nil {
		slides = func(i int) bool { return types[i] == slidingAttention }
	}
	window := b.window(4096)
	if a.Bidirectional = both; both && window > 0 {
		window = window/2 + 1
	}
	windows := b.spread(window, slides)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(full, a.HeadDim), windows[i]
		if slides(i) {
			x.Rope = b.rope(sliding, a.HeadDim)
		}
		b.headNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		return b.fourNorms(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}
