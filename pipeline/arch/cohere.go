package arch

// Cohere is Command R and Aya 23: attention and MLP read one LayerNorm without bias, rotary pairs are interleaved, and
// logits are multiplied by logit_scale. Norms of q and k (use_qk_norm, Command R+) have a gamma per head and are refused.
type Cohere struct{}

// Architectures implements [Family].
func (Cohere) Architectures() []string { return []string{"CohereForCausalLM"} }

// Describe implements [Family].
func (Cohere) Describe(c *Config) (*Decoder, error) {
	b := beginCohere(c)
	b.Inert("model_max_length")
	a, bias, rope := b.heads(0), b.Bool("attention_bias", false), ropeRules{theta: 500000}.read(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		b.interleaved(x, bias)
		return sameNorm(b.norms(p+"input_layernorm"), x, b.mlp(p+"mlp.", b.intermediate, false))
	})
}

// beginCohere reads what both generations have.
func beginCohere(c *Config) *builder {
	b := begin(c, "layer_norm_eps", 1e-5)
	b.centered = true
	b.tied(true)
	b.mlpKeys("hidden_act", "silu")
	b.Only("use_qk_norm", "false")
	b.Inert("rms_norm_eps")
	b.d.LogitScale = orZero(b.number("logit_scale", minMultiplier, maxMultiplier, 0.0625))
	return b
}
