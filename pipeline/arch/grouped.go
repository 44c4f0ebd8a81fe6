package arch

// groupedKeys are the keys of DeepSeek's mixtures, which other families share: n_routed_experts of
// moe_intermediate_size, num_experts_per_tok of them chosen by sigmoid and a correction that affects only the choice;
// only experts of the topk_group best of n_group groups can be chosen, the score of a group being that of its two best
// experts; weights are normalized if norm_topk_prob is set, and multiplied by routed_scaling_factor. The
// n_shared_experts are one MLP for every token. Layers below first_k_dense_replace are dense.
type groupedKeys struct {
	experts, topK, intermediate, shared, dense, groups, topGroups int
	normalize                                                     bool
	scale                                                         float64
	// softmax selects DeepSeek-V2's rules: no correction, and the best expert stands for its group.
	softmax bool
}

// groupedKeys reads the keys; missing has the defaults of the class.
func (b *builder) groupedKeys(missing groupedKeys) groupedKeys {
	g := missing
	g.experts, g.topK = b.expertKeys("num_experts_per_tok", missing.topK, missing.experts, "n_routed_experts", "num_local_experts", "num_experts")
	if g.topK == 0 {
		b.missing("num_experts_per_tok")
	}
	g.intermediate = b.Range("moe_intermediate_size", 1, maxIntermediate, missing.intermediate)
	g.shared = b.Range("n_shared_experts", 0, maxExperts, missing.shared)
	g.dense = b.Range("first_k_dense_replace", 0, maxLayers, missing.dense)
	g.groups, g.topGroups = b.Range("n_group", 1, maxExperts, missing.groups), b.Range("topk_group", 1, maxExperts, missing.topGroups)
	g.normalize = b.Bool("norm_topk_prob", missing.normalize)
	g.scale = b.number("routed_scaling_factor", 1e-6, 1e6, missing.scale)
	b.routerKeys()
	b.Inert("aux_loss_alpha", "seq_aux")
	if g.softmax {
		b.Only("scoring_func", `"softmax"`)
		if method, ok := b.OptString("topk_method"); !ok || method == "greedy" {
			g.groups, g.topGroups = 1, 1
		} else if method != "group_limited_greedy" {
			b.Refuse("topk_method", `%s is not supported, only "greedy" or "group_limited_greedy"`, show(method))
		}
		if g.normalize {
			b.Refuse("norm_topk_prob", "true is not supported: it has no effect in this family")
			g.normalize = false
		}
	} else {
		b.Only("scoring_func", `"sigmoid"`)
		b.Only("topk_method", `"noaux_tc"`)
	}
	if !b.Good("n_routed_experts", "n_group", "topk_group", "num_experts_per_tok") {
		return g
	}
	size := g.experts / g.groups
	switch {
	case g.experts%g.groups != 0:
		b.Wrong("n_group", "%d experts do not divide into %d groups", g.experts, g.groups)
	case g.topGroups > g.groups:
		b.Wrong("topk_group", "%d of %d groups", g.topGroups, g.groups)
	case g.topK > g.topGroups*size:
		b.Wrong("num_experts_per_tok", "%d of the %d experts in %d groups", g.topK, g.topGroups*size, g.topGroups)
	case !g.softmax && g.groups > 1 && size < 2:
		b.Wrong("n_group", "a group has one expert, and its two best count")
	}
	return g
}

// groupedBlock returns the second block of layer i, p being "model.layers.3.mlp.".
func (b *builder) groupedBlock(g groupedKeys, i int, p string) Block {
	if i < g.dense {
		return b.mlp(p, b.intermediate, b.mlpBias)
	}
	return b.mixture(g, p)
}

// mixture returns the block of a layer that is not dense.
func (b *builder) mixture(g groupedKeys, p string) *Experts {
	e := &Experts{
		Router: b.linear(p+"gate", g.experts, b.d.Hidden, false), Scoring: Sigmoid, TopK: g.topK,
		Normalize: g.normalize, Scale: orZero(g.scale),
		Experts: b.experts(p+"experts.", g.experts, g.intermediate, usualExperts),
	}
	if g.normalize {
		e.Epsilon = 1e-20
	}
	if g.groups > 1 {
		e.Groups, e.TopGroups, e.GroupTop = g.groups, g.topGroups, 2
	}
	if g.softmax {
		e.Scoring, e.GroupTop = Softmax, min(e.Groups, 1)
	} else {
		e.Correction = vector(p+"gate.e_score_correction_bias", g.experts)
	}
	if g.shared > 0 {
		e.Shared = b.mlp(p+"shared_experts.", g.shared*g.intermediate, b.mlpBias)
	}
	return e
}
