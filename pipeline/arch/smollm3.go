package arch

// describeSmolLM3 describes Llama with some layers without rotation: every no_rope_layer_interval-th, or those with a 0
// in no_rope_layers. With use_sliding_window, these have a sliding_window, unless layer_types lists others.
func describeSmolLM3(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(true)
	b.mlpKeys("hidden_act", "silu")
	a, bias, mlpBias := b.heads(0), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := ropeRules{theta: 2e6}.read(c)
	every := b.Range("no_rope_layer_interval", 1, maxLayers, 4)
	turns := b.Ints("no_rope_layers", 0, 1)
	if turns != nil && len(turns) != b.layers && b.Good("num_hidden_layers") {
		b.Wrong("no_rope_layers", "%d entries for %d layers", len(turns), b.layers)
		turns = nil
	}
	plain := func(i int) bool {
		if turns != nil {
			return turns[i] == 0
		}
		return (i+1)%every == 0
	}
	w := 0
	if b.Bool("use_sliding_window", false) {
		w = b.window(0)
	} else {
		b.Inert("sliding_window")
	}
	b.Inert("max_window_layers")
	windows := b.windows(w, func(i int) bool { return w != 0 && plain(i) })
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Window = windows[i]
		if !plain(i) {
			x.Rope = b.rope(rope, a.HeadDim)
		}
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, mlpBias))
	})
}
