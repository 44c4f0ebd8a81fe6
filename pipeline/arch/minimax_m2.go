package arch

// describeMiniMaxM2 describes MiniMaxM2, which has norms of the whole projections of q and k, rotation of a part of
// every head (rotary_dim elements, or partial_rotary_factor), and experts in every layer, chosen by sigmoid and a
// correction that does not affect their weights, which are scaled to a sum of 1.
func describeMiniMaxM2(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("MiniMaxM2Config", "MiniMaxM2Model", "MiniMaxM2ForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.routerKeys()
	// Keys of published files that the class does not read. Their values match the behaviour of the class.
	b.Only("qk_norm_type", `"per_layer"`)
	b.Only("scoring_func", `"sigmoid"`)
	b.Only("shared_intermediate_size", "0")
	b.Only("sliding_window")
	b.Only("use_qk_norm", "true")
	b.Only("use_routing_bias", "true")
	for i, kind := range b.Ints("attn_type_list", 0, 1) {
		if kind != 1 {
			b.Refuse("attn_type_list", "0 of layer %d (lightning attention) is not supported", i)
			break
		}
	}
	b.Inert("mtp_transformer_layers", "num_mtp_modules", "use_mtp", "max_model_len",
		"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta")
	a := b.heads(128)
	partial := 1.0
	if dim, ok := b.OptInt("rotary_dim", maxHeadDim); ok && b.Good("rotary_dim", "head_dim") {
		if partial = float64(dim) / float64(a.HeadDim); dim > a.HeadDim {
			b.Wrong("rotary_dim", "%d of the %d elements of a head", dim, a.HeadDim)
		}
	}
	rope := ropeRules{theta: 5000000, partial: partial}.read(c)
	if b.Has("rotary_dim") && rope.partial != partial && b.Good("rotary_dim") {
		b.Wrong("rotary_dim", "contradicts a partial_rotary_factor of %g", rope.partial)
	}
	n, k := b.expertKeys("num_experts_per_tok", 8, 256, "num_local_experts", "num_experts")
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, false, false)
		x.Rope = b.rope(rope, a.HeadDim)
		b.wideNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		e, correction := b.mixtralExperts(p, n, k, b.intermediate), p+"block_sparse_moe.e_score_correction_bias"
		if _, ok := b.Tensor(correction); !ok {
			correction = p + "mlp.e_score_correction_bias"
		}
		e.Scoring, e.Correction = Sigmoid, Weight{Tensor: correction, Rows: n}
		return b.preNorm(p, x, e)
	})
}
