package arch

// describePhi3 describes Phi-3, Phi-3.5 and Phi-4: q, k and v are one matrix, and so are gate and up. sliding_window is
// that of all layers. A part of every head is rotated (partial_rotary_factor), by plain frequencies or by longrope,
// which divides them by short_factor and, in texts longer than original_max_position_embeddings, by long_factor.
func describePhi3(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("Phi3Config", "Phi3Model", "Phi3ForCausalLM")
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Inert("resid_pdrop", "embd_pdrop")
	// Without longrope, the original length has no effect.
	rope := ropeRules{partial: 1, long: true, original: b.Range("original_max_position_embeddings", 1, maxPositions, 4096)}.read(c)
	b.Only("attention_bias", "false")
	// Keys of Phi-4-mini from a larger family, which transformers does not read.
	b.Only("full_attn_mod", "1")
	b.Only("interpolate_factor", "1")
	b.Only("lm_head_bias", "false")
	b.Only("mlp_bias", "false")
	a, w := b.heads(0), b.window(0)
	windows := b.spread(w, always(w))
	return b.finish(&a, func(i int, p string) Layer {
		x := b.fusedHeads(p+"self_attn.qkv_proj", a, false)
		x.O = b.linear(p+"self_attn.o_proj", b.d.Hidden, a.Heads*a.HeadDim, false)
		x.Rope, x.Window = b.rope(rope, a.HeadDim), windows[i]
		return b.preNorm(p, x, b.fusedMLP(p+"mlp.gate_up_proj", p+"mlp.down_proj", b.intermediate))
	})
}

// fusedHeads takes q, k and v from a matrix that has the rows of all heads of q, then those of k, then those of v.
func (b *builder) fusedHeads(name string, a Attention, bias bool) *Attention {
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	a.Q = b.part(name+".q", name, b.d.Hidden, bias, Run{Start: 0, Count: q})
	a.K = b.part(name+".k", name, b.d.Hidden, bias, Run{Start: q, Count: kv})
	a.V = b.part(name+".v", name, b.d.Hidden, bias, Run{Start: q + kv, Count: kv})
	return &a
}
