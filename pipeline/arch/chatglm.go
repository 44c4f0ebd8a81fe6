package arch

import (
	"regexp"
	"strings"
)

// chatGLMRotary is the buffer of rotary frequencies.
var chatGLMRotary = Skip{Match: regexp.MustCompile(`^transformer\.rotary_pos_emb\.inv_freq$`), Reason: claimRotary}

// describeChatGLM describes ChatGLM 2 and 3 and the first GLM-4 9B, with their own keys and tensor names: q, k and v in
// one matrix (multi_query_group_num key-value heads), gate and up in another, interleaved rotary pairs in the first
// half of every head, with the base 10000·rope_ratio. The source is the code in the repositories of the checkpoints
// (modeling_chatglm.py); the class is not in transformers, unlike that of the checkpoints whose names end in -hf.
func describeChatGLM(c *Config) (*Decoder, error) {
	b := &builder{
		Config: c,
		d: &Decoder{
			Hidden: c.Int("hidden_size", maxHidden), Vocab: c.Int("padded_vocab_size", maxVocab), MaxPositions: c.Int("seq_length", maxPositions),
			Skips: []Skip{chatGLMRotary},
		},
		layers: c.either("num_layers", "num_hidden_layers", maxLayers), eps: 1e-5, activation: SiLU,
		prefix: "transformer.encoder.", embedding: "transformer.embedding.word_embeddings",
		finalNorm: "transformer.encoder.final_layernorm", head: "transformer.output_layer",
		intermediate: c.Int("ffn_hidden_size", maxIntermediate),
	}
	b.code("ChatGLMConfig", "ChatGLMModel", "ChatGLMForConditionalGeneration")
	if eps, ok := b.OptFloat("layernorm_epsilon", 1e-30, 1); ok {
		b.eps = eps
	}
	b.tied(false)
	for _, only := range [][2]string{
		{"apply_residual_connection_post_layernorm", "false"}, {"fp32_residual_connection", "false"}, {"interleaved_qkv", "false"},
		{"multi_query_attention", "true"}, {"original_rope", "true"}, {"post_layer_norm", "true"}, {"prefix_projection", "false"},
		{"quantization_bit", "0"}, {"rmsnorm", "true"},
	} {
		b.Only(only[0], only[1])
	}
	b.Only("pre_seq_len")
	if !b.Has("multi_query_attention") {
		b.missing("multi_query_attention")
	}
	// Alternative ways of the same computation, and duplicate keys.
	b.Inert("apply_query_key_layer_scaling", "attention_softmax_in_fp32", "bias_dropout_fusion", "classifier_dropout",
		"hidden_dropout", "max_position_embeddings", "vocab_size")
	a := Attention{
		Heads: b.Int("num_attention_heads", maxHeads), KVHeads: b.Int("multi_query_group_num", maxHeads),
		HeadDim: b.Int("kv_channels", maxHeadDim),
	}
	if b.Good("num_attention_heads", "multi_query_group_num") && a.Heads%a.KVHeads != 0 {
		b.Wrong("num_attention_heads", "%d heads cannot share %d key-value heads", a.Heads, a.KVHeads)
	}
	bias := b.Bool("add_bias_linear", false)
	qkvBias := b.Bool("add_qkv_bias", false) || bias
	rope := ropeParams{kind: "default", theta: defaultTheta, partial: .5}
	if ratio, ok := b.OptFloat("rope_ratio", 1e-3, 1e9); ok && ratio != 1 {
		// The code of ChatGLM 2 divides positions instead, and only its name distinguishes it.
		if name, _ := b.OptString("_name_or_path"); strings.Contains(name, "chatglm2") {
			b.unsupported("rope_ratio", "%g is not supported in ChatGLM 2", ratio)
		}
		rope.theta *= ratio
	}
	return b.finish(&a, func(_ int, p string) Layer {
		x, qkv := a, p+"self_attention.query_key_value"
		x.Rope = b.rope(rope, a.HeadDim)
		q, kv, turned := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim, x.Rope.Dim
		x.Q = b.part(qkv+".q", qkv, b.d.Hidden, qkvBias, halves(0, a.Heads, a.HeadDim, a.HeadDim, turned)...)
		x.K = b.part(qkv+".k", qkv, b.d.Hidden, qkvBias, halves(q, a.KVHeads, a.HeadDim, a.HeadDim, turned)...)
		x.V = b.part(qkv+".v", qkv, b.d.Hidden, qkvBias, Run{Start: q + kv, Count: kv})
		x.O = b.linear(p+"self_attention.dense", b.d.Hidden, q, bias)
		up, n := p+"mlp.dense_h_to_4h", b.intermediate
		mlp := &MLP{
			Intermediate: n, Activation: b.activation,
			Gate: b.part(up+".gate", up, b.d.Hidden, bias, Run{Count: n}),
			Up:   b.part(up+".up", up, b.d.Hidden, bias, Run{Start: n, Count: n}),
			Down: b.linear(p+"mlp.dense_4h_to_h", b.d.Hidden, n, bias),
		}
		return b.preNorm(p, &x, mlp)
	})
}
