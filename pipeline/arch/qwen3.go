package arch

// Qwen3 is the dense Qwen 3: every head of q and k is normalised before rotation, attention_bias puts
// biases on q, k, v and o. Sliding windows are refused.
type Qwen3 struct{}

// Architectures implements [Family].
func (Qwen3) Architectures() []string { return []string{"Qwen3ForCausalLM"} }

// Describe implements [Family].
func (Qwen3) Describe(c *Config) (*Decoder, error) {
	bias := c.Bool("attention_bias", false)
	// Unlike the others, Qwen3Config has a head_dim of its own when the file has none.
	return preNorm{headDim: 128, qkvBias: bias, outBias: bias, headNorm: true, windows: true}.describe(c)
}
