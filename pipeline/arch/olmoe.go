package arch

// describeOlmoe describes Olmoe, which has experts (softmax over all, then the largest, whose weights sum to 1 only
// with norm_topk_prob), and norms of the whole projections of q and k. clip_qkv bounds q and k after these norms, and
// v.
func describeOlmoe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.routerKeys()
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), readRope(c)
	a.Clip = b.clip()
	n, k := b.expertKeys("num_experts_per_tok", 8, 64, "num_experts", "num_local_experts")
	normalize := b.Bool("norm_topk_prob", false)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		b.wideNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		return b.preNorm(p, x, &Experts{
			Router: b.linear(p+"mlp.gate", n, b.d.Hidden, false), Scoring: Softmax, TopK: k, Normalize: normalize,
			Experts: b.experts(p+"mlp.experts.", n, b.intermediate, usualExperts),
		})
	})
}

// wideNorms adds norms of the whole projections of q and k.
func (b *builder) wideNorms(a *Attention, q, k string) {
	qn, kn := b.norm(q, a.Heads*a.HeadDim), b.norm(k, a.KVHeads*a.HeadDim)
	a.QNorm, a.KNorm = &qn, &kn
}
