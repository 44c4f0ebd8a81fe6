package arch

// describePhiMoE describes Phi-3.5-MoE and GRIN-MoE: LayerNorms with biases, experts like those of Mixtral, two of
// which [SparseMixer] chooses and weighs with router_jitter_noise, and optional biases of attention (attention_bias)
// and of the head (lm_head_bias). With sliding_window, every layer has a window.
//
// Longrope divides frequencies by short_factor, and by long_factor in texts beyond original_max_position_embeddings, as
// in the code of the checkpoints; transformers 5.23 keeps the short factors there. Cosine and sine are multiplied by
// short_mscale and, in such texts, by long_mscale: this is supported only if the two agree, as in all published models.
func describePhiMoE(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("PhiMoEConfig", "PhiMoEForCausalLM")
	b.centered, b.normBias, b.headBias = true, true, b.Bool("lm_head_bias", false)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	near := 2 * b.number("router_jitter_noise", 0, 1, 0.01)
	b.routerKeys()
	b.Inert("hidden_dropout", "input_jitter_noise")
	b.Only("num_experts_per_tok", "2")
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), ropeRules{theta: 1000000, mscales: true}.read(c)
	if rope.kind == "longrope" {
		b.same(rope.original, "original_max_position_embeddings")
	} else {
		b.Inert("original_max_position_embeddings")
	}
	window := b.window(0)
	windows := b.spread(window, always(window))
	n, _ := b.expertKeys("num_experts_per_tok", 2, 16, "num_local_experts", "num_experts")
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		e := b.mixtralExperts(p, n, 2, b.intermediate)
		e.Scoring, e.Normalize, e.Near = SparseMixer, false, near
		return b.preNorm(p, x, e)
	})
}
