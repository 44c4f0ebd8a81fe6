package arch

// describeInternLM2 describes InternLM 2 and 2.5: Llama with other names, and with q, k and v in one matrix that is
// grouped by key-value head (the query heads of the group, its key, its value). bias, by default true, adds biases to
// that matrix and to o. The source is the code in the repositories of the checkpoints (modeling_internlm2.py); the
// class is not in transformers.
func describeInternLM2(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-6)
	b.code("InternLM2Config", "InternLM2Model", "InternLM2ForCausalLM")
	b.embedding, b.head = "model.tok_embeddings", "output"
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, rope := b.heads(0), b.Bool("bias", true), readRope(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.grouped(p+"attention.wqkv", a, bias)
		x.O = b.linear(p+"attention.wo", b.d.Hidden, a.Heads*a.HeadDim, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		mlp := &MLP{
			Intermediate: b.intermediate, Activation: b.activation,
			Gate: b.linear(p+"feed_forward.w1", b.intermediate, b.d.Hidden, false),
			Up:   b.linear(p+"feed_forward.w3", b.intermediate, b.d.Hidden, false),
			Down: b.linear(p+"feed_forward.w2", b.d.Hidden, b.intermediate, false),
		}
		return Layer{
			{Norm: b.norms(p + "attention_norm"), Block: x},
			{Norm: b.norms(p + "ffn_norm"), Block: mlp},
		}
	})
}

// grouped takes q, k and v from a matrix that has, for every key-value head, its query heads, the key and the value.
func (b *builder) grouped(name string, a Attention, bias bool) *Attention {
	per := a.Heads / a.KVHeads
	part := func(what string, at, heads int) Linear {
		runs := make([]Run, 0, a.KVHeads)
		for g := range a.KVHeads {
			runs = append(runs, Run{Start: (g*(per+2) + at) * a.HeadDim, Count: heads * a.HeadDim})
		}
		return b.part(name+what, name, b.d.Hidden, bias, runs...)
	}
	a.Q, a.K, a.V = part(".q", 0, per), part(".k", per, 1), part(".v", per+1, 1)
	return &a
}
