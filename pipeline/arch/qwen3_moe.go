package arch

// describeQwen3Moe describes Qwen 3 with experts: Qwen3, but in every decoder_sparse_step-th layer that is not in
// mlp_only_layers the MLP is a mixture: softmax over num_experts, the num_experts_per_tok largest, normalized if
// norm_topk_prob is set. With use_sliding_window, all layers have a sliding_window.
func describeQwen3Moe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	// Keys of Qwen3-Coder's files that the class does not read.
	b.Only("qkv_bias", "false")
	b.Only("shared_expert_intermediate_size", "0")
	b.Only("use_qk_norm", "true")
	return finishQwen3Moe(b, readRope(c), softmaxKeys{experts: 128, topK: 8, intermediate: 768}, (*builder).sameWindows)
}

func finishQwen3Moe(b *builder, rope ropeParams, missing softmaxKeys, readWindows func(*builder) []int) (*Decoder, error) {
	b.mlpKeys("hidden_act", "silu")
	a, bias := b.heads(0), b.Bool("attention_bias", false)
	windows := readWindows(b)
	sparse, m := b.sparseLayers(), b.softmaxKeys(missing)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		b.headNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		if !sparse(i) {
			return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
		}
		return b.preNorm(p, x, b.softmaxExperts(p+"mlp.", m))
	})
}

// softmaxKeys are the keys of Qwen's mixtures.
type softmaxKeys struct {
	experts, topK, intermediate, shared int // shared is the size of the shared expert, or 0
	normalize                           bool
}

// sparseLayers returns which layers are mixtures.
func (b *builder) sparseLayers() func(i int) bool {
	step, dense := b.Range("decoder_sparse_step", 1, maxLayers, 1), b.chosen("mlp_only_layers")
	return func(i int) bool { return !dense[i] && (i+1)%step == 0 }
}

// softmaxKeys reads the keys of a mixture; missing has the defaults of the class.
func (b *builder) softmaxKeys(missing softmaxKeys) softmaxKeys {
	m := missing
	m.experts, m.topK = b.expertKeys("num_experts_per_tok", missing.topK, missing.experts, "num_experts", "num_local_experts")
	m.intermediate = b.Range("moe_intermediate_size", 1, maxIntermediate, missing.intermediate)
	if missing.shared != 0 {
		m.shared = b.Range("shared_expert_intermediate_size", 1, maxIntermediate, missing.shared)
	}
	m.normalize = b.Bool("norm_topk_prob", missing.normalize)
	b.routerKeys()
	return m
}

// softmaxExperts returns the mixture with its usual names, p being "model.layers.3.mlp.".
func (b *builder) softmaxExperts(p string, m softmaxKeys) *Experts {
	e := &Experts{
		Router:    b.linear(p+"gate", m.experts, b.d.Hidden, false),
		Scoring:   Softmax,
		TopK:      m.topK,
		Normalize: m.normalize,
		Experts:   b.experts(p+"experts.", m.experts, m.intermediate, usualExperts),
	}
	if m.shared != 0 {
		e.Shared = b.mlp(p+"shared_expert.", m.shared, false)
		e.SharedGate = b.linear(p+"shared_expert_gate", 1, b.d.Hidden, false)
	}
	return e
}
