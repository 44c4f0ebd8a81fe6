package repository

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// tekkenFile is a tekken.json of Mistral. Members for images and sounds are ignored.
type tekkenFile struct {
	Config struct {
		Pattern string `json:"pattern"`
		Vocab   *int   `json:"default_vocab_size"`
		Special *int   `json:"default_num_special_tokens"`
		Version string `json:"version"`
	} `json:"config"`
	Vocab []struct {
		Rank  int    `json:"rank"`
		Bytes string `json:"token_bytes"`
	} `json:"vocab"`
	Special []struct {
		Rank int    `json:"rank"`
		Text string `json:"token_str"`
	} `json:"special_tokens"`
}

// tekkenSpecial are the special tokens of files that list none, which are those before November 2024. See
// DEPRECATED_SPECIAL_TOKENS in mistral_common/tokens/tokenizers/tekken.py.
var tekkenSpecial = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
	"[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
	"[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}

// Tekken reads a tekken.json. The ids are those of the library `mistral_common`: special tokens first, then the vocabulary. In
// a text special tokens become their ids here, which the library never does. The file takes precedence over the repository.
func (c *Config) Tekken(b []byte) (*Definition, error) {
	var f tekkenFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%v: %w", err, tensor.ErrCorrupt)
	}
	special, err := f.special()
	if err != nil {
		return nil, err
	}
	ranks, err := f.ranks(len(special))
	if err != nil {
		return nil, err
	}
	if f.Config.Pattern == "" {
		return nil, fmt.Errorf("config: no pattern: %w", tensor.ErrCorrupt)
	}
	d := ranks.define(special, f.Config.Pattern)
	for _, text := range special {
		d.add(tokenizer.AddedToken{Content: text, Special: true})
	}
	c.complete(map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})
	d.apply(c)
	return d, d.frame(c)
}

// special are the special tokens by id, with those that only have a number.
func (f *tekkenFile) special() ([]string, error) {
	list := tekkenSpecial
	if f.Special != nil {
		list = make([]string, len(f.Special))
		for _, s := range f.Special {
			if s.Rank < 0 || s.Rank >= len(list) || list[s.Rank] != "" || s.Text == "" {
				return nil, fmt.Errorf("special token %q with rank %d of %d: %w", s.Text, s.Rank, len(list), tensor.ErrCorrupt)
			}
			list[s.Rank] = s.Text
		}
	}
	n := len(list)
	if f.Config.Special != nil {
		n = *f.Config.Special
	}
	const most = 1 << 16
	if n < len(list) || n > most {
		return nil, fmt.Errorf("%d special tokens, default_num_special_tokens is %d: %w", len(list), n, tensor.ErrCorrupt)
	}
	list = append(list[:len(list):len(list)], numbered("<SPECIAL_%d>", len(list), n-len(list))...)
	seen := make(map[string]bool, len(list))
	for _, text := range list {
		if seen[text] {
			return nil, fmt.Errorf("special token %q appears twice: %w", text, tensor.ErrCorrupt)
		}
		seen[text] = true
	}
	return list, nil
}

// ranks are the tokens that count: the file has more than the model's vocabulary.
func (f *tekkenFile) ranks(special int) (tiktokenRanks, error) {
	n := len(f.Vocab)
	if f.Config.Vocab != nil {
		n = *f.Config.Vocab - special
	}
	if n < 0 || n > len(f.Vocab) {
		return nil, fmt.Errorf("%d tokens, default_vocab_size is %d with %d special ones: %w", len(f.Vocab), n+special, special, tensor.ErrCorrupt)
	}
	ranks := make(tiktokenRanks, n)
	for i, t := range f.Vocab[:n] {
		if t.Rank != i {
			return nil, fmt.Errorf("token %d has rank %d: %w", i, t.Rank, tensor.ErrCorrupt)
		}
		token, err := base64.StdEncoding.DecodeString(t.Bytes)
		if err != nil {
			return nil, fmt.Errorf("token %d: %v: %w", i, err, tensor.ErrCorrupt)
		}
		ranks[i] = string(token)
	}
	return ranks, ranks.check()
}
