package arch

// granite is IBM's Granite 3: Llama with four factors, each 1 by default: embedding_multiplier of token rows,
// attention_multiplier of scores in place of 1/sqrt(head_dim), residual_multiplier of the outputs of blocks, and
// logits_scaling, which divides logits. With experts, which is granitemoe, the MLPs are mixtures of num_local_experts
// of intermediate_size: the num_experts_per_tok largest scores, softmax over them. With shared as well, which is
// granitemoeshared, they have a shared MLP of shared_intermediate_size, 0 for none.
type granite struct{ experts, shared bool }

func (f granite) describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), readRope(c)
	residual := b.graniteFactors(&a)
	mlpBias, n, k, shared := false, 0, 0, 0
	if f.experts {
		n, k = b.expertKeys("num_experts_per_tok", 2, 8, "num_local_experts")
		b.routerKeys()
	} else {
		mlpBias = b.Bool("mlp_bias", false)
	}
	if f.shared {
		shared = b.Range("shared_intermediate_size", 0, maxIntermediate, 0)
	}
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		if f.experts {
			e := b.graniteExperts(p+"block_sparse_moe.", n, k)
			if shared > 0 {
				e.Shared = b.fusedMLP(p+"shared_mlp.input_linear", p+"shared_mlp.output_linear", shared)
			}
			return scaled(residual, b.preNorm(p, x, e))
		}
		return scaled(residual, b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, mlpBias)))
	})
}

// graniteFactors reads the four factors and returns that of the residual stream, 0 for 1.
func (b *builder) graniteFactors(a *Attention) (residual float64) {
	const lo, hi = 1e-9, 1e9
	b.d.EmbeddingScale = orZero(b.number("embedding_multiplier", lo, hi, 1))
	b.d.LogitScale = orZero(1 / b.number("logits_scaling", lo, hi, 1))
	a.Scale = b.number("attention_multiplier", lo, hi, 1)
	return orZero(b.number("residual_multiplier", lo, hi, 1))
}

// graniteExperts returns a mixture, p being "model.layers.3.block_sparse_moe.".
func (b *builder) graniteExperts(p string, n, k int) *Experts {
	return &Experts{
		Router: b.linear(p+"router.layer", n, b.d.Hidden, false), Scoring: TopKSoftmax, TopK: k,
		Experts: b.experts(p, n, b.intermediate, expertTensors{
			Gate: "gate", Up: "up", Down: "down", GateUp: "input_linear.weight", StackedDown: "output_linear.weight", Stacked: true,
		}),
	}
}
