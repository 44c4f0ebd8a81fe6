package arch

// describeIQuestCoder describes IQuest-Coder in its plain form: Llama with heads of 128 by default (null: hidden_size
// / num_attention_heads). The keys clip_qkv and use_sliding_window of the code in the checkpoints are rejected, as in
// transformers. The loop variants are another model type; their keys are rejected, too.
func describeIQuestCoder(c *Config) (*Decoder, error) {
	b := begin(c, "rms_norm_eps", 1e-5)
	b.code("IQuestCoderConfig", "IQuestCoderModel", "IQuestCoderForCausalLM")
	b.Only("clip_qkv")
	b.Only("use_sliding_window", "false")
	b.Only("loop_num", "1") // a key of the loop variants
	b.Only("loop_window_size")
	b.Inert("sliding_window", "max_window_layers") // without use_sliding_window
	return finishLlama(b, b.headDim(128))
}
