package arch

// describeQwen3 describes the dense Qwen 3: every head of q and k is normalized before rotation, attention_bias adds
// biases to q, k, v and o. Windows are those of Qwen2.
func describeQwen3(c *Config) (*Decoder, error) {
	return finishQwen3(begin(c, "rms_norm_eps", 0), ropeRules{}, (*builder).switchedWindows)
}

func finishQwen3(b *builder, rules ropeRules, readWindows func(*builder) []int) (*Decoder, error) {
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	// Unlike the others, Qwen3Config has its own default of head_dim.
	a, bias, rope := b.heads(128), b.Bool("attention_bias", false), rules.read(b.Config)
	windows := readWindows(b)
	return b.finish(&a, func(i int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		b.headNorms(x, p+"self_attn.q_norm", p+"self_attn.k_norm")
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}
