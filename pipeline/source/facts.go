package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Facts say how a model is used: which tokens end its turn, how a chat is written down, how tokens are drawn.
type Facts struct {
	// Stop is the union of all end-of-sequence ids, sorted.
	Stop []int32
	// Special lists the special added tokens, sorted.
	Special []int32
	// Prefix is the ids that the tokenizer puts before a text.
	Prefix []int32
	// Templates are the chat templates of the checkpoint by name; ChatTemplate is the chosen one of them, the default
	// unless the recipe names another, and PackagedTemplate the one that the package carries for it. Simplified reports
	// whether that is a plain one, as the recipe asks.
	Templates                      map[string]string
	ChatTemplate, PackagedTemplate string
	Simplified                     bool
	// BOS and EOS are the texts of the tokenizer's tokens at the beginning and the end of a sequence.
	BOS, EOS string
	// Sampling holds the values of generation_config.json; nil fields are absent there.
	Sampling Sampling
	// Warnings list what could not be carried over.
	Warnings []string
}

// Sampling holds the settings of generation_config.json for drawing tokens.
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

// ReadFacts reads the tokenizer of the checkpoint in dir and the facts of using it; no weights are needed.
func ReadFacts(dir string) (Facts, *tokenizer.Tokenizer, error) {
	config, err := readSmall(dir, "config.json")
	if err != nil {
		return Facts{}, nil, err
	}
	t, err := LoadTokenizer(dir)
	if err != nil {
		return Facts{}, nil, err
	}
	f, err := readFacts(dir, config, t)
	return f, t, err
}

func readFacts(dir string, config []byte, t *tokenizer.Tokenizer) (Facts, error) {
	f := Facts{Prefix: t.PrefixIDs(), Special: t.SpecialIDs()}

	generation, err := ReadOptional(dir, "generation_config.json")
	if err != nil {
		return f, err
	}
	tokConfig, err := ReadOptional(dir, "tokenizer_config.json")
	if err != nil {
		return f, err
	}
	if generation != nil {
		if err := json.Unmarshal(generation, &f.Sampling); err != nil {
			return f, fmt.Errorf("generation_config.json: %v: %w", err, tensor.ErrCorrupt)
		}
	}
	if err := f.readTokenizerConfig(tokConfig); err != nil {
		return f, err
	}
	if err := f.readTemplates(dir); err != nil {
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
		f.stopAt(ids...)
	}
	if f.EOS != "" {
		id, ok := t.ID(f.EOS)
		if !ok {
			return f, fmt.Errorf("tokenizer_config.json: eos_token %q is not a token: %w", f.EOS, tensor.ErrCorrupt)
		}
		f.stopAt(id)
	}
	for _, id := range f.Stop {
		if _, ok := t.Token(id); !ok {
			return f, fmt.Errorf("eos_token_id %d is not a token of tokenizer.json: %w", id, tensor.ErrCorrupt)
		}
	}
	f.TakeTemplate(f.Templates[DefaultTemplate], t)
	f.Warnings = append(f.Warnings, t.Notes()...)
	return f, nil
}

// stopAt adds to the ids at which to stop.
func (f *Facts) stopAt(ids ...int32) {
	f.Stop = append(f.Stop, ids...)
	slices.Sort(f.Stop)
	f.Stop = slices.Compact(f.Stop)
}

// TakeTemplate makes text the chosen template, and adds the token that it writes after an answer to the stop tokens. It
// changes nothing if text is the chosen template already.
func (f *Facts) TakeTemplate(text string, t *tokenizer.Tokenizer) {
	if text == f.ChatTemplate {
		return
	}
	f.ChatTemplate = text
	for _, e := range turnEnds {
		if id, ok := t.ID(e); ok && strings.Contains(text, e) {
			f.stopAt(id)
		}
	}
	if id, ok := f.turnEnd(t); ok {
		f.stopAt(id)
	}
}

// turnEnd is the added token that the chosen template writes after the last answer of a conversation.
func (f *Facts) turnEnd(t *tokenizer.Tokenizer) (int32, bool) {
	parsed, err := template.Parse("chat_template", f.ChatTemplate)
	if err != nil {
		return 0, false // whether that is an error is decided where the template is needed
	}
	const answer = "\x01A\x01"
	text, err := template.Chat(context.Background(), parsed, []template.Message{{Role: "user", Content: "U"}, {Role: "assistant", Content: answer}}, false,
		map[string]any{"bos_token": f.BOS, "eos_token": f.EOS}, template.Limits{})
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(text, answer)
	rest = strings.TrimLeft(rest, " \t\r\n")
	end, length := int32(0), 0
	for _, a := range t.AddedTokens() {
		if n := len(a.Content); n > length && strings.HasPrefix(rest, a.Content) {
			end, length = a.ID, n
		}
	}
	return end, length > 0
}

// readTokenizerConfig takes bos, eos and the chat templates.
func (f *Facts) readTokenizerConfig(b []byte) error {
	f.Templates = map[string]string{}
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
	var err error
	if f.Templates, err = parseTemplates(c.Template); err != nil {
		return fmt.Errorf("tokenizer_config.json: %w", err)
	}
	return nil
}

// parseTemplates reads a value of chat_template: one template, or a list of such with names.
func parseTemplates(raw json.RawMessage) (map[string]string, error) {
	list := map[string]string{}
	var one string
	if len(raw) == 0 || json.Unmarshal(raw, &one) == nil {
		if one != "" {
			list[DefaultTemplate] = one
		}
		return list, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return nil, fmt.Errorf("chat_template: %v: %w", err, tensor.ErrCorrupt)
	}
	for _, n := range named {
		list[n.Name] = n.Template
	}
	return list, nil
}

// maxTemplates bounds the files of templates that are read.
const maxTemplates = 100

// readTemplates takes templates in files of their own. As for the tokenizer of transformers 5.23, those in .jinja files win
// over those of tokenizer_config.json. It does not read chat_template.json, which processors of older multimodal models
// have, so that counts only where there is no other.
func (f *Facts) readTemplates(dir string) error {
	if b, err := ReadOptional(dir, "chat_template.json"); err != nil {
		return err
	} else if b != nil && len(f.Templates) == 0 {
		var c struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := json.Unmarshal(b, &c); err != nil {
			return fmt.Errorf("chat_template.json: %v: %w", err, tensor.ErrCorrupt)
		}
		if f.Templates, err = parseTemplates(c.Template); err != nil {
			return fmt.Errorf("chat_template.json: %w", err)
		}
	}
	files := map[string]string{DefaultTemplate: "chat_template.jinja"}
	entries, err := os.ReadDir(filepath.Join(dir, "additional_chat_templates"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries[:min(len(entries), maxTemplates)] {
		if name, ok := strings.CutSuffix(e.Name(), ".jinja"); ok {
			files[name] = filepath.Join("additional_chat_templates", e.Name())
		}
	}
	for name, file := range files {
		b, err := ReadOptional(dir, file)
		if err != nil {
			return err
		}
		if b != nil {
			f.Templates[name] = string(b)
		}
	}
	return nil
}

// eosIDs reads eos_token_id: absent, null, a number or a list.
func eosIDs(b []byte) ([]int32, error) {
	if b == nil {
		return nil, nil
	}
	var c struct {
		EOS  json.RawMessage `json:"eos_token_id"`
		Text json.RawMessage `json:"text_config"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%v: %w", err, tensor.ErrCorrupt)
	}
	if len(c.Text) > 0 && string(c.Text) != "null" {
		inner, err := eosIDs(c.Text)
		if err != nil {
			return nil, fmt.Errorf("text_config: %w", err)
		}
		own, err := eosIDsOf(c.EOS)
		return append(own, inner...), err
	}
	return eosIDsOf(c.EOS)
}

// eosIDsOf reads a value of eos_token_id.
func eosIDsOf(raw json.RawMessage) ([]int32, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []int32
	if json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	var one int32
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil, fmt.Errorf("%v: %w", err, tensor.ErrCorrupt)
	}
	return []int32{one}, nil
}
