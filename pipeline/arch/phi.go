package arch

// describePhi describes Phi 1, 1.5 and 2: attention and MLP share one LayerNorm with bias, a part of every head is
// rotated (partial_rotary_factor, by default 0.5), the MLP is ungated, and there are biases everywhere, including the
// head. Norms of q and k (qk_layernorm) are rejected.
func describePhi(c *Config) (*Decoder, error) {
	b := begin(c, "layer_norm_eps", 1e-5)
	b.code("PhiConfig", "PhiModel", "PhiForCausalLM")
	b.centered, b.normBias, b.headBias = true, true, true
	b.finalNorm = b.prefix + "final_layernorm"
	b.tied(false)
	b.geluKeys("hidden_act", GELUTanh)
	b.Only("qk_layernorm", "false")
	b.Inert("embd_pdrop", "resid_pdrop", "rms_norm_eps")
	a, rope := b.heads(0), ropeRules{partial: .5}.read(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, true, false)
		x.O = b.linear(p+"self_attn.dense", b.d.Hidden, a.Heads*a.HeadDim, true)
		x.Rope = b.rope(rope, a.HeadDim)
		mlp := b.plainMLP(p+"mlp.fc1", p+"mlp.fc2", b.intermediate, true)
		return sameNorm(b.norms(p+"input_layernorm"), x, mlp)
	})
}
