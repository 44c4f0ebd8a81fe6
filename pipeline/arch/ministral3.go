package arch

// describeMinistral3 describes Ministral 3 and Devstral 2: Mistral whose queries grow with their position by
// llama_4_scaling_beta in steps of original_max_position_embeddings, both among the rotary keys, which are yarn's by
// default. With sliding_window, by default none, every layer has a window.
func describeMinistral3(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, rope := b.heads(128), ropeRules{warm: true, missing: ropeParams{
		kind: "yarn", theta: 1e6, factor: 16, original: 16384, fast: 32, slow: 1, mscale: 1, mscaleAll: 1, warmth: 0.1,
	}}.read(c)
	if rope.warmth != 0 {
		a.Temperature = &Temperature{Floor: rope.original, Scale: rope.warmth}
	}
	window := b.window(0)
	windows := b.spread(window, always(window))
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, false, false)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}
