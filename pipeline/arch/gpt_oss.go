package arch

// describeGptOss describes OpenAI's gpt-oss: biases everywhere (attention_bias), a learned sink for every head, a
// sliding_window in every other layer (layer_types), and mixtures of num_local_experts in all layers: the
// num_experts_per_tok largest scores, softmax over them. An expert is a clamped SwiGLU (swiglu_alpha, swiglu_limit),
// see [ClampedSwiGLU], of intermediate_size; its tensors are stacked, input-major, with gate and up alternating; those
// of MXFP4 (pipeline/quantized) are called *.transposed.
func describeGptOss(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu") // written but not used by transformers
	b.activation = ClampedSwiGLU
	alpha, limit := b.number("swiglu_alpha", 1e-3, 1e3, 1.702), b.number("swiglu_limit", 1e-3, 1e6, 7)
	a, bias := b.heads(b.headDim(64)), b.Bool("attention_bias", true)
	rope := ropeRules{theta: 150000, missing: ropeParams{
		kind: "yarn", factor: 32, fast: 32, slow: 1, exact: true, original: 4096,
	}}.read(c)
	b.Inert("initial_context_length") // also in the rope parameters
	w := b.window(128)
	windows := b.windows(w, everyNth(2))
	n, k := b.expertKeys("num_experts_per_tok", 4, 128, "num_local_experts", "num_experts")
	b.same(float64(k), "experts_per_token")
	b.routerKeys()
	names := expertTensors{
		Gate: "gate_proj", Up: "up_proj", Down: "down_proj", GateUp: "gate_up_proj", StackedDown: "down_proj",
		Stacked: true, InputMajor: true, Transposed: ".transposed", Interleaved: true, Bias: true,
	}
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window, x.Sinks = b.rope(rope, a.HeadDim), windows[i], vector(p+"self_attn.sinks", a.Heads)
		e := &Experts{
			Router: b.linear(p+"mlp.router", n, b.d.Hidden, true), Scoring: TopKSoftmax, TopK: k,
			Experts: b.experts(p+"mlp.experts.", n, b.intermediate, names),
		}
		for j := range e.Experts {
			e.Experts[j].Alpha, e.Experts[j].Limit = alpha, limit
		}
		return b.preNorm(p, x, e)
	})
}
