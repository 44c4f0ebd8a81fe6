package stage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Facts say how a model is used: which tokens end its turn, how a chat is written down, how tokens are drawn.
type Facts struct {
	// Stop is the union of all end-of-sequence ids, sorted.
	Stop []int32
	// Special lists the special added tokens, sorted.
	Special []int32
	// Prefix is what the tokenizer puts before a text.
	Prefix       []int32
	ChatTemplate string
	// BOS and EOS are the texts of the tokenizer's tokens at the beginning and the end of a sequence.
	BOS, EOS string
	// Sampling holds the values of generation_config.json; nil fields are absent there.
	Sampling Sampling
	// Warnings say what could not be carried over.
	Warnings []string
}

// Sampling is what generation_config.json says of drawing tokens.
type Sampling struct {
	DoSample          *bool    `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopK              *int     `json:"top_k"`
	TopP              *float64 `json:"top_p"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
}

// turnEnds are tokens that end a turn in chat formats although config files sometimes name another token only.
var turnEnds = []string{"<|im_end|>", "<|eot_id|>", "<end_of_turn>"}

func readFacts(dir string, config []byte, t *tokenizer.Tokenizer) (Facts, error) {
	f := Facts{Prefix: t.PrefixIDs()}
	for _, a := range t.AddedTokens() {
		if a.Special {
			f.Special = append(f.Special, a.ID)
		}
	}
	slices.Sort(f.Special)

	generation, err := readOptional(dir, "generation_config.json")
	if err != nil {
		return f, err
	}
	tokConfig, err := readOptional(dir, "tokenizer_config.json")
	if err != nil {
		return f, err
	}
	template, err := readOptional(dir, "chat_template.jinja")
	if err != nil {
		return f, err
	}
	if generation != nil {
		if err := json.Unmarshal(generation, &f.Sampling); err != nil {
			return f, fmt.Errorf("generation_config.json: %v: %w", err, tensor.ErrCorrupt)
		}
	}
	if err := f.readTokenizerConfig(tokConfig, template); err != nil {
		return f, err
	}
	for _, c := range []struct {
		name string
		b    []byte
	}{{"config.json", config}, {"generation_config.json", generation}} {
		ids, err := eosIDs(c.b)
		if err != nil {
			return f, fmt.Errorf("%s: eos_token_id: %w", c.name, err)
		}
		f.Stop = append(f.Stop, ids...)
	}
	if f.EOS != "" {
		id, ok := t.ID(f.EOS)
		if !ok {
			return f, fmt.Errorf("tokenizer_config.json: eos_token %q is no token: %w", f.EOS, tensor.ErrCorrupt)
		}
		f.Stop = append(f.Stop, id)
	}
	for _, e := range turnEnds {
		if id, ok := t.ID(e); ok && strings.Contains(f.ChatTemplate, e) {
			f.Stop = append(f.Stop, id)
		}
	}
	slices.Sort(f.Stop)
	f.Stop = slices.Compact(f.Stop)
	for _, id := range f.Stop {
		if _, ok := t.Token(id); !ok {
			return f, fmt.Errorf("eos_token_id %d is no token of tokenizer.json: %w", id, tensor.ErrCorrupt)
		}
	}
	f.Warnings = append(f.Warnings, t.Losses()...)
	f.Warnings = append(f.Warnings, t.Notes()...)
	return f, nil
}

// readTokenizerConfig takes eos and the chat template; a template in a file of its own wins.
func (f *Facts) readTokenizerConfig(b, template []byte) error {
	f.ChatTemplate = string(template)
	if b == nil {
		return nil
	}
	var c struct {
		BOS      json.RawMessage `json:"bos_token"`
		EOS      json.RawMessage `json:"eos_token"`
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("tokenizer_config.json: %v: %w", err, tensor.ErrCorrupt)
	}
	for _, t := range []struct {
		name string
		raw  json.RawMessage
		to   *string
	}{{"bos_token", c.BOS, &f.BOS}, {"eos_token", c.EOS, &f.EOS}} {
		if len(t.raw) == 0 || json.Unmarshal(t.raw, t.to) == nil {
			continue
		}
		var o struct {
			Content string `json:"content"`
		}
		if err := json.Unmarshal(t.raw, &o); err != nil {
			return fmt.Errorf("tokenizer_config.json: %s: %v: %w", t.name, err, tensor.ErrCorrupt)
		}
		*t.to = o.Content
	}
	if template != nil || len(c.Template) == 0 || json.Unmarshal(c.Template, &f.ChatTemplate) == nil {
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(c.Template, &named); err != nil {
		return fmt.Errorf("tokenizer_config.json: chat_template: %v: %w", err, tensor.ErrCorrupt)
	}
	for _, n := range named {
		if n.Name == "default" {
			f.ChatTemplate = n.Template
			return nil
		}
	}
	return fmt.Errorf("tokenizer_config.json: chat_template: none of %d is named default: %w", len(named), tensor.ErrUnsupported)
}

// eosIDs reads eos_token_id: absent, null, a number or a list.
func eosIDs(b []byte) ([]int32, error) {
	if b == nil {
		return nil, nil
	}
	var c struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%v: %w", err, tensor.ErrCorrupt)
	}
	if len(c.EOS) == 0 || string(c.EOS) == "null" {
		return nil, nil
	}
	var list []int32
	if json.Unmarshal(c.EOS, &list) == nil {
		return list, nil
	}
	var one int32
	if err := json.Unmarshal(c.EOS, &one); err != nil {
		return nil, fmt.Errorf("%v: %w", err, tensor.ErrCorrupt)
	}
	return []int32{one}, nil
}
