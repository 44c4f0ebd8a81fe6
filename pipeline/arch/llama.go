package arch

// Llama is Llama 2 and 3, and the many models that were trained with the same code (SmolLM2,
// TinyLlama). attention_bias puts biases on q, k, v and o, mlp_bias on the three matrices of the MLP.
type Llama struct{}

// Architectures implements [Family].
func (Llama) Architectures() []string { return []string{"LlamaForCausalLM"} }

// Describe implements [Family].
func (Llama) Describe(c *Config) (*Decoder, error) {
	bias := c.Bool("attention_bias", false)
	return preNorm{qkvBias: bias, outBias: bias, mlpBias: c.Bool("mlp_bias", false)}.describe(c)
}
