package arch

import "strconv"

// describeStableLM describes StableLM 2, Zephyr and Stable Code: LayerNorms with biases, rotation of a part of every
// head (partial_rotary_factor, by default 0.25), biases on q, k and v with use_qkv_bias. With use_parallel_residual,
// attention and MLP share one norm. With qk_layernorm (StableLM 2 12B), every head of q and k has its own LayerNorm,
// without a bias.
func describeStableLM(c *Config) (*Decoder, error) {
	b := begin(c, "layer_norm_eps", 1e-5)
	b.centered, b.normBias = true, true
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Inert("hidden_dropout", "rms_norm_eps")
	a, bias := b.heads(0), b.Bool("use_qkv_bias", false)
	parallel, norms := b.Bool("use_parallel_residual", false), b.Bool("qk_layernorm", false)
	rope := ropeRules{partial: .25}.read(c)
	b.same(rope.partial, "rope_pct") // in published files, not read by the class
	return b.finish(&a, func(_ int, p string) Layer {
		x, mlp := b.projections(p+"self_attn.", a, bias, false), b.mlp(p+"mlp.", b.intermediate, false)
		x.Rope = b.rope(rope, a.HeadDim)
		if norms {
			x.QNorm = b.listedNorm(p+"self_attn.q_layernorm.norms", a.Heads, a.HeadDim)
			x.KNorm = b.listedNorm(p+"self_attn.k_layernorm.norms", a.KVHeads, a.HeadDim)
		}
		if parallel {
			return sameNorm(b.norms(p+"input_layernorm"), x, mlp)
		}
		return b.preNorm(p, x, mlp)
	})
}

// listedNorm is a LayerNorm without bias for each of n heads, whose gains are separate tensors, p + ".0.weight" and so
// on.
func (b *builder) listedNorm(p string, n, dim int) *Norm {
	v := View{Name: p + ".weight", Tensor: p + ".0.weight", Rows: n * dim}
	for h := 1; h < n; h++ {
		v.Then = append(v.Then, p+"."+strconv.Itoa(h)+".weight")
	}
	return &Norm{Gamma: b.view(v), Eps: b.eps, Centered: true, Parts: n}
}
