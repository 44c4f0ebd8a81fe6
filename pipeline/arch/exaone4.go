package arch

// describeExaone4 describes Exaone4, which normalizes the outputs of attention and MLP instead of their inputs, and
// every head of q and k before rotation. With sliding_window, every sliding_window_pattern-th layer, or those that
// layer_types names, has full attention without rotation; without it, all layers have full attention with rotation.
func describeExaone4(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, rope := b.heads(0), readRope(c)
	window := b.window(4096)
	slides := b.slides(everyNth(b.exaonePattern(window)))
	windows := b.spread(window, slides)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, false, false)
		if x.Window = windows[i]; slides(i) || window == 0 {
			x.Rope = b.rope(rope, a.HeadDim)
		}
		b.headNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		return b.postNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// exaonePattern reads the period of layers with full attention: 1 without windows. Published files also write it as
// "LLLG" in addition to layer_types, which then decides.
func (b *builder) exaonePattern(window int) int {
	const key = "sliding_window_pattern"
	switch text, isText := b.fields.values[key].(string); {
	case window == 0:
		b.Inert(key)
		return 1
	case isText && b.Has("layer_types"):
		b.Inert(key)
		return 1
	case isText:
		b.Refuse(key, "%s without layer_types is not supported", show(text))
		return 1
	}
	return b.Range(key, 1, maxLayers, 4)
}
