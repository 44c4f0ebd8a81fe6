package arch

// describeMixtral describes a Mistral whose MLPs are experts: softmax over all, the num_experts_per_tok largest, whose
// weights are scaled to a sum of 1. With sliding_window, every layer has a window.
func describeMixtral(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.routerKeys()
	a, rope := b.heads(0), ropeRules{theta: 1000000}.read(c)
	window := b.window(0)
	windows := b.spread(window, always(window))
	n, k := b.expertKeys("num_experts_per_tok", 2, 8, "num_local_experts", "num_experts")
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, false, false)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.preNorm(p, x, b.mixtralExperts(p, n, k, b.intermediate))
	})
}

// mixtralTensors are the names of experts in checkpoints of Mixtral.
var mixtralTensors = expertTensors{Gate: "w1", Up: "w3", Down: "w2", GateUp: "gate_up_proj", StackedDown: "down_proj"}

// routerKeys marks the keys of routers that affect only training.
func (b *builder) routerKeys() {
	b.Inert("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
}

// mixtralExperts returns the experts of a layer, under block_sparse_moe or, in newer libraries, mlp; p is
// "model.layers.3.".
func (b *builder) mixtralExperts(p string, n, k, intermediate int) *Experts {
	at := p + "block_sparse_moe."
	if _, ok := b.Tensor(at + "gate.weight"); !ok {
		at = p + "mlp."
	}
	return &Experts{
		Router: b.linear(at+"gate", n, b.d.Hidden, false), Scoring: Softmax, TopK: k, Normalize: true,
		Experts: b.experts(at+"experts.", n, intermediate, mixtralTensors),
	}
}
