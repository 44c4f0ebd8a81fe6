package arch

// ernie is Baidu's ERNIE 4.5: rotary pairs are interleaved; use_bias adds biases to all matrices of attention and MLP,
// and with experts to the head. With experts, the layers from moe_layer_start_index to moe_layer_end_index (-1: the
// last), every moe_layer_interval-th, are mixtures of moe_num_experts of moe_intermediate_size: softmax, moe_k of them
// chosen with a correction, normalized; the moe_num_shared_experts are one MLP for every token.
type ernie struct{ experts bool }

func (f ernie) describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("Ernie4_5_Config", "Ernie4_5_Model", "Ernie4_5_ForCausalLM", "Ernie4_5_MoeConfig", "Ernie4_5_MoeModel", "Ernie4_5_MoeForCausalLM")
	b.tied(true)
	b.mlpKeys("hidden_act", "silu")
	dim := 0
	if !f.experts {
		dim = b.headDim(128)
	}
	a, bias, rope := b.heads(dim), b.Bool("use_bias", false), ropeRules{theta: 500000}.read(c)
	b.same(1, "compression_ratio")
	second := func(_ int, p string) Block { return b.mlp(p, b.intermediate, bias) }
	if f.experts {
		second, b.headBias = b.ernieExperts(bias), bias
	}
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		b.interleaved(x, bias)
		return b.preNorm(p, x, second(i, p+"mlp."))
	})
}

// ernieExperts reads the keys of mixtures, and returns a function that makes the second block.
func (b *builder) ernieExperts(bias bool) func(i int, p string) Block {
	n, k := b.expertKeys("moe_k", 6, 64, "moe_num_experts", "num_experts")
	b.same(float64(k), "num_experts_per_tok")
	size := b.Range("moe_intermediate_size", 1, maxIntermediate, 1536)
	shared := b.Range("moe_num_shared_experts", 0, maxExperts, 2)
	first, last := b.Range("moe_layer_start_index", 0, maxLayers, 1), b.Range("moe_layer_end_index", -1, maxLayers, -1)
	every := b.Range("moe_layer_interval", 1, maxLayers, 1)
	if last == -1 {
		last = b.layers - 1
	}
	// The sum of weights is bounded from below by this; sums of softmax are larger.
	b.number("moe_norm_min", 0, 1e-6, 1e-12)
	b.routerKeys()
	b.Inert("moe_capacity")
	b.Only("moe_gate", `"topk"`)
	b.Only("moe_use_aux_free", "true")
	b.Inert("num_nextn_predict_layers")
	b.skip(draftHead, false, `^(model\.)?mtp_`)
	return func(i int, p string) Block {
		if (i+1)%every != 0 || i < first || i > last {
			return b.mlp(p, b.intermediate, bias)
		}
		e := &Experts{
			Router: b.linear(p+"gate", n, b.d.Hidden, false), Scoring: Softmax, TopK: k, Normalize: true,
			Correction: b.view(View{Name: p + "moe_statics.correction", Tensor: p + "moe_statics.e_score_correction_bias", Rows: n}),
			Experts:    b.experts(p+"experts.", n, size, usualExperts),
		}
		if shared > 0 {
			e.Shared = b.mlp(p+"shared_experts.", shared*size, bias)
		}
		return e
	}
}
