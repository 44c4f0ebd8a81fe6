package arch

import "slices"

// describeQwen2Moe describes Qwen 1.5 and 2 with experts: softmax over all, the largest, whose weights sum to 1 only
// with norm_topk_prob; for every token a shared expert, multiplied by the sigmoid of its own gate. Layers in
// mlp_only_layers, and all but every decoder_sparse_step-th, have an MLP of intermediate_size instead. With
// use_sliding_window, the layers that layer_types names, by default every second one below max_window_layers, have a
// window.
func describeQwen2Moe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.routerKeys()
	a, bias, rope := b.heads(0), b.Bool("qkv_bias", true), readRope(c)
	windows := b.alternatingWindows()
	n, k := b.expertKeys("num_experts_per_tok", 4, 60, "num_experts")
	size := b.Range("moe_intermediate_size", 1, maxIntermediate, 1408)
	shared := b.Range("shared_expert_intermediate_size", 1, maxIntermediate, 5632)
	step, dense := b.Range("decoder_sparse_step", 1, maxLayers, 1), b.Ints("mlp_only_layers", 0, maxLayers)
	normalize := b.Bool("norm_topk_prob", false)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, false)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		if slices.Contains(dense, i) || (i+1)%step != 0 {
			return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
		}
		return b.preNorm(p, x, &Experts{
			Router: b.linear(p+"mlp.gate", n, b.d.Hidden, false), Scoring: Softmax, TopK: k, Normalize: normalize,
			Experts:    b.experts(p+"mlp.experts.", n, size, usualExperts),
			Shared:     b.mlp(p+"mlp.shared_expert.", shared, false),
			SharedGate: b.linear(p+"mlp.shared_expert_gate", 1, b.d.Hidden, false),
		})
	})
}

// alternatingWindows reads the keys of Qwen's windows by the rule of Qwen2MoeConfig, which differs from that of Qwen2.
func (b *builder) alternatingWindows() []int {
	below := b.Range("max_window_layers", 0, maxPositions, 28)
	if !b.Bool("use_sliding_window", false) {
		b.Inert("sliding_window")
		return b.windows(0, func(int) bool { return false })
	}
	return b.windows(b.window(4096), func(i int) bool { return i%2 == 0 && i < below })
}
