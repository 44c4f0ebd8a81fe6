package main

import (
	"encoding/json"
	"fmt"
)

// specials are the last ids of a made-up tokenizer; a text ends with the last one.
var specials = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

// madeUpTokenizer is a byte-level BPE tokenizer of vocab ids: all bytes, then every token followed by every byte, in the
// order of their ids. It is valid and knows no language.
func madeUpTokenizer(vocab int) (map[string][]byte, error) {
	tokens := byteTokens()
	if vocab < len(tokens)+len(specials) {
		return nil, fmt.Errorf("a vocabulary of %d does not hold all bytes and %d special tokens", vocab, len(specials))
	}
	words := vocab - len(specials)
	ids := make(map[string]int, words)
	for id, t := range tokens {
		ids[t] = id
	}
	merges := make([][2]string, 0, words)
	for left := 0; len(tokens) < words; left++ {
		for _, right := range tokens[:min(256, words-len(tokens))] {
			merges = append(merges, [2]string{tokens[left], right})
			tokens = append(tokens, tokens[left]+right)
			ids[tokens[len(tokens)-1]] = len(tokens) - 1
		}
	}
	type added struct {
		ID         int    `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	var list []added
	for i, s := range specials {
		list = append(list, added{ID: words + i, Content: s, Special: true})
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	tokenizer, err := json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": list, "normalizer": nil,
		"pre_tokenizer": byteLevel, "post_processor": nil, "decoder": byteLevel,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ids, "merges": merges,
		},
	})
	if err != nil {
		return nil, err
	}
	config, err := json.MarshalIndent(map[string]any{
		"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": specials[0], "eos_token": specials[len(specials)-1],
	}, "", "  ")
	return map[string][]byte{"tokenizer.json": tokenizer, "tokenizer_config.json": config}, err
}

// byteTokens are the stand-ins for bytes in byte-level tokenizers, printable ASCII first.
func byteTokens() []string {
	var plain, moved []string
	for b := range 256 {
		if b > ' ' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			plain = append(plain, string(rune(b)))
		} else {
			moved = append(moved, string(rune(256+len(moved))))
		}
	}
	return append(plain, moved...)
}
