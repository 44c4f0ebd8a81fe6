package arch

// Qwen2 is Qwen 1.5, 2 and 2.5: always biases on q, k and v, never on o. Sliding windows are refused.
type Qwen2 struct{}

// Architectures implements [Family].
func (Qwen2) Architectures() []string { return []string{"Qwen2ForCausalLM"} }

// Describe implements [Family].
func (Qwen2) Describe(c *Config) (*Decoder, error) {
	return preNorm{qkvBias: true, windows: true}.describe(c)
}
