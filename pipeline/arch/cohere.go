package arch

// describeCohere describes Command R and Aya 23: attention and MLP share one LayerNorm without bias, rotary pairs are
// interleaved, and logits are multiplied by logit_scale. With use_qk_norm (Command R+), every head of q and k has its
// own LayerNorm.
func describeCohere(c *Config) (*Decoder, error) {
	b := beginCohere(c)
	b.Inert("model_max_length")
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), ropeRules{theta: 500000}.read(c)
	norms := b.Bool("use_qk_norm", false)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		b.interleaved(x, bias)
		if norms {
			x.QNorm = b.interleavedNorm(p+"self_attn.q_norm", a.Heads, a.HeadDim, x.Rope.Dim)
			x.KNorm = b.interleavedNorm(p+"self_attn.k_norm", a.KVHeads, a.HeadDim, x.Rope.Dim)
		}
		return sameNorm(b.norms(p+"input_layernorm"), x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// interleavedNorm is a LayerNorm for each of n heads, whose gains are the rows of one tensor, in the order of
// [builder.interleaved].
func (b *builder) interleavedNorm(name string, n, dim, turned int) *Norm {
	gamma := b.view(View{Name: name + ".half_split.weight", Tensor: name + ".weight", Rows: n * dim, Runs: halves(0, n, dim, dim, turned)})
	return &Norm{Gamma: gamma, Eps: b.eps, Centered: true, Parts: n}
}

// beginCohere reads the keys that both generations share.
func beginCohere(c *Config) *builder {
	b := begin(c, "layer_norm_eps", 1e-5)
	b.centered = true
	b.tied(true)
	b.mlpKeys("hidden_act", "silu")
	b.Inert("rms_norm_eps")
	b.d.LogitScale = orZero(b.number("logit_scale", minMultiplier, maxMultiplier, 0.0625))
	return b
}
