package arch

// describeDots1 describes dots.llm1: norms of every head of q and k before rotation; after first_k_dense_replace dense
// layers, experts chosen by sigmoid and a correction that does not affect their weights, which are normalized with
// norm_topk_prob and multiplied by routed_scaling_factor; and n_shared_experts for every token. With sliding_window,
// the layers from max_window_layers on, or those that layer_types names, have a sliding window.
func describeDots1(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("Dots1Config", "Dots1Model", "Dots1ForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.routerKeys()
	b.Only("moe_layer_freq", "1")
	b.Only("scoring_func", `"noaux_tc"`, `"sigmoid"`)
	b.Only("topk_method", `"noaux_tc"`)
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), readRope(c)
	window, from := b.window(4096), b.Range("max_window_layers", 0, maxPositions, 62)
	windows := b.windows(window, func(i int) bool { return window != 0 && i >= from })
	if !b.Has("n_routed_experts") && !b.Has("num_local_experts") {
		b.missing("n_routed_experts")
	}
	n, k := b.expertKeys("num_experts_per_tok", 0, 1, "n_routed_experts", "num_local_experts")
	if k == 0 {
		b.missing("num_experts_per_tok")
	}
	size := b.Int("moe_intermediate_size", maxIntermediate)
	shared, dense := b.Int("n_shared_experts", maxExperts), b.Range("first_k_dense_replace", 0, maxLayers, 0)
	groups, top := b.Range("n_group", 1, maxExperts, 1), b.Range("topk_group", 1, maxExperts, 1)
	if b.Good("n_group", "topk_group", "n_routed_experts") && (n%groups != 0 || n/groups < 2 || top > groups) {
		b.Wrong("n_group", "%d experts in %d groups, of which %d are chosen", n, groups, top)
	}
	normalize, scale := b.Bool("norm_topk_prob", false), orZero(b.multiplier("routed_scaling_factor"))
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		b.headNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		if i < dense {
			return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
		}
		return b.preNorm(p, x, &Experts{
			Router: b.linear(p+"mlp.gate", n, b.d.Hidden, false), Scoring: Sigmoid, TopK: k,
			Correction: Weight{Tensor: p + "mlp.gate.e_score_correction_bias", Rows: n},
			Normalize:  normalize, Epsilon: 1e-20, Scale: scale,
			Groups: groups, TopGroups: top, GroupTop: 2,
			Experts: b.experts(p+"mlp.experts.", n, size, usualExperts),
			Shared:  b.mlp(p+"mlp.shared_experts.", shared*size, false),
		})
	})
}
