package repository

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// tokenizerClass holds the parts that a tokenizer class of transformers 5.23 builds around a vocabulary.
type tokenizerClass struct {
	// special are the tokens with names that a repository need not mention.
	special map[string]string
	// normalizer, preTokenizer and decoder are made from the settings of the repository.
	normalizer   part
	preTokenizer func(*Config) part
	decoder      func(*Config) part
	// fuse and byteFallback are settings of the model; unk is the name of its unknown token.
	fuse, byteFallback bool
	unk                string
}

const (
	// qwen2Pattern splits the texts of Qwen2Tokenizer, qwen35Pattern those of Qwen3_5Tokenizer.
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen35Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// tokenizerClasses are those of models that generate text. A class that neither transformers nor Python code of
// the repository defines stands for TokenizersBackend, which takes files as they are.
var tokenizerClasses = map[string]*tokenizerClass{
	"LlamaTokenizer": {
		special:      map[string]string{"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
		preTokenizer: llamaPreTokenizer,
		decoder:      func(c *Config) part { return spDecoder(c.addPrefixSpace == nil || *c.addPrefixSpace) },
		fuse:         true, byteFallback: true,
	},
	"GemmaTokenizer": {
		special: map[string]string{
			"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "mask_token": "<mask>",
		},
		normalizer: replaceLiteral(" ", metaspace),
		preTokenizer: func(*Config) part {
			return part{"type": "Split", "pattern": part{"String": " "}, "behavior": "MergedWithPrevious", "invert": false}
		},
		decoder: func(*Config) part { return spDecoder(false) },
		fuse:    true, byteFallback: true, unk: "unk_token",
	},
	"Qwen2Tokenizer": {
		special:      map[string]string{"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
		normalizer:   part{"type": "NFC"},
		preTokenizer: func(c *Config) part { return splitBytes(qwen2Pattern, c.prefixSpace()) },
		decoder:      byteLevelPart,
	},
	"Qwen3_5Tokenizer": {
		special:      map[string]string{"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
		normalizer:   part{"type": "NFC"},
		preTokenizer: func(c *Config) part { return splitBytes(qwen35Pattern, c.prefixSpace()) },
		decoder:      byteLevelPart,
	},
	"GPT2Tokenizer": {
		special:      map[string]string{"unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
		preTokenizer: byteLevelPart,
		decoder:      func(*Config) part { return byteLevelPart(&Config{}) },
	},
	"GPTNeoXTokenizer": {
		special: map[string]string{
			"unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|padding|>",
		},
		normalizer:   part{"type": "NFC"},
		preTokenizer: byteLevelPart,
		decoder:      func(*Config) part { return byteLevelPart(&Config{}) },
	},
	"CohereTokenizer": {
		special: map[string]string{
			"unk_token": "<UNK>", "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "pad_token": "<PAD>",
			"cls_token": "<CLS>", "sep_token": "<SEP>", "mask_token": "<MASK_TOKEN>",
		},
		normalizer: part{"type": "NFC"},
		preTokenizer: func(c *Config) part {
			return part{"type": "Sequence", "pretokenizers": []part{{"type": "Digits", "individual_digits": true}, byteLevelPart(c)}}
		},
		decoder: byteLevelPart,
	},
}

func (c *Config) prefixSpace() bool { return c.addPrefixSpace != nil && *c.addPrefixSpace }

func llamaPreTokenizer(c *Config) part {
	scheme := "first"
	switch {
	case c.addPrefixSpace != nil && !*c.addPrefixSpace:
		scheme = "never"
	case c.legacy != nil && *c.legacy:
		scheme = "always"
	}
	return part{"type": "Metaspace", "replacement": metaspace, "prepend_scheme": scheme, "split": false}
}

// byteLevelPart is ByteLevel with the pattern of GPT-2.
func byteLevelPart(c *Config) part {
	return part{"type": "ByteLevel", "add_prefix_space": c.prefixSpace(), "trim_offsets": true, "use_regex": true}
}

// splitBytes cuts a text by a pattern.
func splitBytes(pattern string, prefixSpace bool) part {
	return part{"type": "Sequence", "pretokenizers": []part{
		{"type": "Split", "pattern": part{"Regex": pattern}, "behavior": "Isolated", "invert": false},
		{"type": "ByteLevel", "add_prefix_space": prefixSpace, "trim_offsets": true, "use_regex": false},
	}}
}

// registered is the class of transformers for a model type, if repositories name another one. For types with
// TokenizersBackend the class that a repository names is ignored.
var registered = map[string]string{}

func init() {
	for class, types := range map[string][]string{
		"TokenizersBackend": {
			"arctic", "aria", "chatlm", "ernie4_5", "ernie4_5_moe", "flex_olmo", "fuyu", "glm", "glm4", "glm4_moe", "glm4_moe_lite",
			"glm4v", "glm4v_moe", "gpt_bigcode", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared", "h2ovl_chat",
			"hyperclovax", "hyperclovax_vlm", "internlm2", "internlm3", "iquestcoder", "jamba", "kimi_k25", "kimi_linear", "llava",
			"llava_next", "mimo_v2_flash", "minicpm3", "minicpmv", "minimax_m2", "ministral", "ministral3", "mistral", "mistral3",
			"mistral_large4", "mixtral", "molmo", "molmo2", "nemotron", "nvfp4", "olmo2", "olmo3", "olmo_hybrid", "opencua", "openvla",
			"paddleocr_vl", "persimmon", "phi3", "phi3_v", "phimoe", "pixtral", "smolvlm", "stablelm", "step3_vl", "vipllava", "voxtral",
		},
		"Qwen2Tokenizer": {"qwen2"},
		"Qwen3_5Tokenizer": {
			"qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp",
		},
	} {
		for _, t := range types {
			registered[t] = class
		}
	}
}

// defaults are the classes of model types whose repository names none.
var defaults = map[string]string{
	"gemma": "GemmaTokenizer", "gemma2": "GemmaTokenizer", "gemma3": "GemmaTokenizer", "gemma3_text": "GemmaTokenizer",
	"gemma3n": "GemmaTokenizer", "gemma3n_text": "GemmaTokenizer", "recurrent_gemma": "GemmaTokenizer",
	"qwen2": "Qwen2Tokenizer", "qwen2_moe": "Qwen2Tokenizer", "qwen2_vl": "Qwen2Tokenizer", "qwen2_5_vl": "Qwen2Tokenizer",
	"qwen3": "Qwen2Tokenizer", "qwen3_moe": "Qwen2Tokenizer", "qwen3_next": "Qwen2Tokenizer", "qwen3_vl": "Qwen2Tokenizer",
	"qwen3_5": "Qwen3_5Tokenizer", "qwen3_5_moe": "Qwen3_5Tokenizer", "qwen3_5_text": "Qwen3_5Tokenizer",
	"qwen3_5_moe_text": "Qwen3_5Tokenizer",
	"gpt2":             "GPT2Tokenizer", "gptj": "GPT2Tokenizer", "gpt_neo": "GPT2Tokenizer", "opt": "GPT2Tokenizer", "phi": "GPT2Tokenizer",
	"starcoder2": "GPT2Tokenizer", "dbrx": "GPT2Tokenizer", "codegen": "GPT2Tokenizer", "gpt_neox": "GPTNeoXTokenizer",
	"olmo": "GPTNeoXTokenizer", "olmoe": "GPTNeoXTokenizer", "mamba": "GPTNeoXTokenizer", "mamba2": "GPTNeoXTokenizer",
	"falcon_mamba": "GPTNeoXTokenizer", "rwkv": "GPTNeoXTokenizer", "mpt": "GPTNeoXTokenizer",
	"cohere": "CohereTokenizer", "cohere2": "CohereTokenizer",
}

// class is that which AutoTokenizer takes; nil is TokenizersBackend.
func (c *Config) class() *tokenizerClass {
	own := registered[c.ModelType]
	switch {
	case own == "TokenizersBackend":
		return nil
	case own != "" && c.Class != "":
		return tokenizerClasses[own]
	case c.Class != "":
		return tokenizerClasses[c.Class]
	}
	return tokenizerClasses[defaults[c.ModelType]]
}

// complete adds the tokens with names that the class has by itself.
func (c *Config) complete(special map[string]string) {
	for _, name := range specialNames {
		text, ok := special[name]
		if ok && !slices.ContainsFunc(c.special, func(s specialToken) bool { return s.name == name }) {
			c.special = append(c.special, specialToken{name, tokenizer.AddedToken{Content: text, Special: true}})
		}
	}
	place := func(s specialToken) int {
		if i := slices.Index(specialNames, s.name); i >= 0 {
			return i
		}
		return len(specialNames)
	}
	slices.SortStableFunc(c.special, func(a, b specialToken) int { return place(a) - place(b) })
	c.settle()
}

// apply adds the tokens of the repository to those of the vocabulary, as TokenizersBackend does.
func (d *Definition) apply(c *Config) {
	listed := make(map[string]bool, len(d.added)+len(c.added))
	for _, a := range d.added {
		listed[a.Content] = true
	}
	for _, a := range c.added {
		listed[a.Content] = true
		if at, ok := d.place[a.Content]; !ok || !same(d.added[at], a) {
			d.add(a)
		}
	}
	for _, s := range c.special {
		if !listed[s.Content] {
			s.Special = true
			d.add(s.AddedToken)
		}
	}
	for _, a := range c.extra {
		if !listed[a.Content] {
			d.add(a)
		}
	}
}

// same compares all but the ids.
func same(a, b tokenizer.AddedToken) bool {
	a.ID = b.ID
	return a == b
}

// frame puts bos and eos around a text if the repository sets that.
func (d *Definition) frame(c *Config) error {
	token := func(name string, wanted *bool) []string {
		if text := c.named(name).Content; wanted != nil && *wanted && text != "" {
			return []string{text}
		}
		return nil
	}
	return d.surround(token("bos_token", c.addBOS), token("eos_token", c.addEOS))
}

// surround puts tokens before and after every text.
func (d *Definition) surround(before, after []string) error {
	if len(before)+len(after) == 0 {
		return nil
	}
	special := part{}
	pieces := func(tokens []string) (list []part, err error) {
		for _, text := range tokens {
			id, ok := d.id(text)
			if !ok {
				return nil, fmt.Errorf("%q, which stands around texts, is not a token: %w", text, tensor.ErrCorrupt)
			}
			list = append(list, part{"SpecialToken": part{"id": text, "type_id": 0}})
			special[text] = part{"id": text, "ids": []int32{id}, "tokens": []string{text}}
		}
		return list, nil
	}
	left, err := pieces(before)
	if err != nil {
		return err
	}
	right, err := pieces(after)
	if err != nil {
		return err
	}
	single := slices.Concat(left, []part{{"Sequence": part{"id": "A", "type_id": 0}}}, right)
	pair := append(slices.Clone(single), part{"Sequence": part{"id": "B", "type_id": 1}})
	d.postProcessor = part{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
	return nil
}

// id is that of a token of the model or an added one.
func (d *Definition) id(text string) (int32, bool) {
	if at, ok := d.place[text]; ok {
		return d.added[at].ID, true
	}
	id, ok := d.ids[text]
	return id, ok
}
