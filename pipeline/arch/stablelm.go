package arch

// StableLM is StableLM 2, Zephyr and Stable Code: LayerNorms with biases, rotation of a part of every head
// (partial_rotary_factor, .25 if the file has none), biases on q, k and v with use_qkv_bias. With use_parallel_residual
// attention and MLP read one norm. Norms of q and k (qk_layernorm) have a gamma per head and are refused.
type StableLM struct{}

// Architectures implements [Family].
func (StableLM) Architectures() []string { return []string{"StableLmForCausalLM"} }

// Describe implements [Family].
func (StableLM) Describe(c *Config) (*Decoder, error) {
	b := begin(c, "layer_norm_eps", 1e-5)
	b.centered, b.normBias = true, true
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	b.Only("qk_layernorm", "false")
	b.Inert("hidden_dropout", "rms_norm_eps")
	a, bias := b.heads(0), b.Bool("use_qkv_bias", false)
	parallel := b.Bool("use_parallel_residual", false)
	rope := ropeRules{partial: .25}.read(c)
	b.same(rope.partial, "rope_pct") // of published files, not read by the class
	return b.finish(&a, func(_ int, p string) Layer {
		x, mlp := b.projections(p+"self_attn.", a, bias, false), b.mlp(p+"mlp.", b.intermediate, false)
		x.Rope = b.rope(rope, a.HeadDim)
		if parallel {
			return sameNorm(b.norms(p+"input_layernorm"), x, mlp)
		}
		return b.preNorm(p, x, mlp)
	})
}
