package arch

import (
	"slices"
	"strings"
)

// maxListedKeys bounds the keys that a note names.
const maxListedKeys = 20

// inertKey is a key of any family that does not change the computation, provided it has one of the accepted values,
// written as in JSON. An empty list accepts every value.
type inertKey struct {
	accept []string
	why    string // the reason for refusing other values, if not obvious
}

// inert lists the keys that every family may have. Keys that affect a computation are not here: families read them.
var inert = map[string]inertKey{
	// Origin of the file and how it was saved.
	"_commit_hash":           {},
	"_name_or_path":          {},
	"is_llama_config":        {}, // the training framework of SmolLM
	"max_sequence_length":    {}, // of LLaMA 1 and some derived models; max_position_embeddings counts
	"name_or_path":           {},
	"tokenizer_class":        {},
	"transformers.js_config": {},
	"transformers_version":   {},
	"unsloth_fixed":          {},
	"unsloth_version":        {},

	// Training.
	"attention_dropout":   {},
	"initializer_range":   {},
	"neftune_noise_alpha": {},

	// How the Python code runs and what it returns.
	"_attn_implementation":          {},
	"_attn_implementation_autoset":  {},
	"_attn_implementation_internal": {},
	"attn_implementation":           {},
	"chunk_size_feed_forward":       {},
	"is_decoder":                    {},
	"output_attentions":             {},
	"output_hidden_states":          {},
	"pretraining_tp":                {}, // number of partial sums in products
	"return_dict":                   {},
	"torchscript":                   {},
	"use_bfloat16":                  {},
	"use_cache":                     {},

	// Tokens and defaults of generation; generation_config.json and the tokenizer override them.
	"bad_words_ids":                    {},
	"begin_suppress_tokens":            {},
	"bos_token_id":                     {},
	"decoder_start_token_id":           {},
	"diversity_penalty":                {},
	"do_sample":                        {},
	"early_stopping":                   {},
	"encoder_no_repeat_ngram_size":     {},
	"eos_token_id":                     {},
	"exponential_decay_length_penalty": {},
	"forced_bos_token_id":              {},
	"forced_eos_token_id":              {},
	"length_penalty":                   {},
	"max_length":                       {},
	"min_length":                       {},
	"no_repeat_ngram_size":             {},
	"num_beam_groups":                  {},
	"num_beams":                        {},
	"num_return_sequences":             {},
	"output_scores":                    {},
	"pad_token_id":                     {},
	"prefix":                           {},
	"remove_invalid_values":            {},
	"repetition_penalty":               {},
	"return_dict_in_generate":          {},
	"sep_token_id":                     {},
	"suppress_tokens":                  {},
	"temperature":                      {},
	"top_k":                            {},
	"top_p":                            {},
	"typical_p":                        {},

	// Heads for other purposes than the next token.
	"finetuning_task":      {},
	"id2label":             {},
	"label2id":             {},
	"num_labels":           {},
	"problem_type":         {},
	"task_specific_params": {},
	"tf_legacy_loss":       {},

	// Inert only with these values.
	"add_cross_attention":         {accept: []string{"false"}},
	"auto_map":                    {accept: []string{"null"}, why: "the checkpoint brings its own model code"},
	"cross_attention_hidden_size": {accept: []string{"null"}},
	"is_encoder_decoder":          {accept: []string{"false"}},
	"per_layer_config":            {accept: []string{"null", "{}"}, why: "layers that differ from each other"},
	"pruned_heads":                {accept: []string{"null", "{}"}},
	"quantization_config":         {accept: []string{"null"}, why: "the weights are quantized already"},
	"rope_interleaved":            {accept: []string{"false"}},
	"tie_encoder_decoder":         {accept: []string{"false"}},
	"use_mrope":                   {accept: []string{"false"}},
	"use_sliding_window":          {accept: []string{"false"}},
}

// checkInert rejects the unread keys of the file unless they are inert, and nulls that the model's class does not
// accept.
func (c *Config) checkInert() {
	c.checkDType()
	var unread []string
	for _, key := range c.fields.keys {
		if c.Null(key) && c.class != nil && c.class.notNull[key] && c.Good(key) {
			c.Wrong(key, "null, which transformers %s does not take here", transformers().version)
			continue
		}
		if c.consumed[key] || c.class != nil && c.Null(key) { // null counts as missing
			continue
		}
		value := show(c.fields.values[key])
		rule, known := inert[key]
		switch {
		case !known && c.unread(key):
			unread = append(unread, printable(c.prefix+key))
		case !known:
			c.Refuse(key, "unknown to family %s", c.family)
		case rule.accept == nil || slices.Contains(rule.accept, value):
		case rule.why != "":
			c.Refuse(key, "%s is not supported: %s", value, rule.why)
		default:
			c.Refuse(key, "%s is not supported, only %s", value, strings.Join(rule.accept, " or "))
		}
	}
	if len(unread) > 0 {
		c.note("keys of %s without effect: %s", configName, enumerate(unread, maxListedKeys, ", "))
	}
}

// unread reports whether a key that the family does not read has no effect: a token's id, state of the library (with an
// underscore), or one that transformers reads for no model at all. Code that is not in transformers may read any other.
func (c *Config) unread(key string) bool {
	return strings.HasPrefix(key, "_") || strings.HasSuffix(key, "_token_id") || strings.HasSuffix(key, "_token_ids") ||
		c.class != nil && !transformers().reads[key]
}

// checkDType compares the two spellings of the element type. The type itself is ignored: every tensor has its own.
func (c *Config) checkDType() {
	now, haveNow := c.OptString("dtype")
	before, haveBefore := c.OptString("torch_dtype")
	if haveNow && haveBefore && now != before {
		c.Wrong("torch_dtype", "%s contradicts dtype %s", show(before), show(now))
	}
}
