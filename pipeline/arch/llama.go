package arch

// Llama is Llama 2 and 3, and the many models that were trained with the same code (SmolLM2,
// TinyLlama). attention_bias puts biases on q, k, v and o, mlp_bias on the three matrices of the MLP.
type Llama struct{}

// Architectures implements [Family].
func (Llama) Architectures() []string { return []string{"LlamaForCausalLM"} }

// Describe implements [Family].
func (Llama) Describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 0)
	b.tied(false)
	b.mlpKeys("hidden_act", "silu")
	a, bias, mlpBias := b.heads(0), b.Bool("attention_bias", false), b.Bool("mlp_bias", false)
	rope := readRope(c)
	return b.finish(&a, func(_ int, p string) Layer {
		x := b.projections(p+"self_attn.", a, bias, bias)
		x.Rope = b.rope(rope, a.HeadDim)
		return b.preNorm(p, x, b.mlp(p+"mlp.", b.intermediate, mlpBias))
	})
}
