package arch

// describeBailingMoe describes Ling-lite and Ling-plus: q, k and v are one matrix, and the MLPs from layer
// first_k_dense_replace on are num_experts experts, chosen by softmax over all; the weights of the num_experts_per_tok
// largest sum to 1 if norm_topk_prob is set. num_shared_experts experts, stored as one MLP, apply to every token. The
// class is not in transformers but in the repositories of the checkpoints (modeling_bailing_moe.py).
//
// A head with normalized columns (norm_head, of the first Ling) is rejected: it would need a pass over the whole matrix
// before the first row is known.
func describeBailingMoe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("BailingMoeConfig", "BailingMoeModel", "BailingMoeForCausalLM")
	b.embedding = "model.word_embeddings"
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Only("norm_head", "false")
	b.Inert("embedding_dropout", "output_dropout", "norm_softmax", "max_window_layers", "sliding_window")
	b.Only("use_sliding_window", "false")
	b.routerKeys()
	bias := b.Bool("use_qkv_bias", false)
	if b.Bool("use_bias", true) {
		b.Refuse("use_bias", "true, the default, is not supported, only false")
	}
	a, rope := b.heads(0), readRope(c)
	n, k := b.expertKeys("num_experts_per_tok", 0, 0, "num_experts")
	if k == 0 {
		b.missing("num_experts_per_tok")
	}
	if n == 0 {
		b.missing("num_experts")
	}
	intermediate, shared := b.Int("moe_intermediate_size", maxIntermediate), b.Range("num_shared_experts", 0, maxExperts, 0)
	dense, normalize := b.Range("first_k_dense_replace", 0, maxLayers, 0), b.Bool("norm_topk_prob", true)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.fusedHeads(p+"attention.query_key_value", a, bias)
		x.O = b.linear(p+"attention.dense", b.d.Hidden, a.Heads*a.HeadDim, false)
		x.Rope = b.rope(rope, a.HeadDim)
		p2 := p + "mlp."
		if i < dense {
			return b.preNorm(p, x, b.mlp(p2, b.intermediate, false))
		}
		e := &Experts{
			Router: b.linear(p2+"gate", n, b.d.Hidden, false), Scoring: Softmax, TopK: k, Normalize: normalize && k > 1,
			Experts: b.experts(p2+"experts.", n, intermediate, usualExperts),
		}
		if shared > 0 {
			e.Shared = b.mlp(p2+"shared_experts.", shared*intermediate, false)
		}
		return b.preNorm(p, x, e)
	})
}
