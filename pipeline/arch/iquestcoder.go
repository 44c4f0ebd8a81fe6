package arch

// IQuestCoder is IQuest-Coder in its plain form: [Llama] with heads of 128 by default (null: hidden_size /
// num_attention_heads). The keys clip_qkv and use_sliding_window of the code in the checkpoints are rejected, as in
// transformers. The loop variants are another model type; their keys are rejected, too.
type IQuestCoder struct{}

// Architectures implements [Family]. transformers saves the model under the name of Llama's class, which it uses.
func (IQuestCoder) Architectures() []string {
	return []string{"IQuestCoderForCausalLM", "LlamaForCausalLM"}
}

// Describe implements [Family].
func (IQuestCoder) Describe(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("IQuestCoderConfig", "IQuestCoderModel", "IQuestCoderForCausalLM")
	b.Only("clip_qkv")
	b.Only("use_sliding_window", "false")
	b.Only("loop_num", "1") // a key of the loop variants
	b.Only("loop_window_size")
	b.Inert("sliding_window", "max_window_layers") // without use_sliding_window
	return describeLlama(b, b.headDim(128))
}
