package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/runtime/template"
	"github.com/llmexport/llmexport/runtime/template/syntax"
	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer"
)

// Facts describe how to use a model: the tokens that end its turn, the format of a chat, how tokens are drawn.
type Facts struct {
	// Stop is the union of all end-of-sequence ids, sorted.
	Stop []int32
	// Special lists the special added tokens, sorted.
	Special []int32
	// Prefix is the ids that the tokenizer puts before a text.
	Prefix []int32
	// Opening is the text of ids that the tokenizer puts before a text and the template of the package writes instead.
	Opening string
	// Templates are the chat templates of the checkpoint by name. ChatTemplate is the chosen one, the default unless the recipe
	// names another; PackagedTemplate is the one in the package. Simplified reports whether that is a plain one, which the
	// recipe must allow.
	Templates                      map[string]string
	ChatTemplate, PackagedTemplate string
	Simplified                     bool
	// Pooled: the model turns a text into a vector, and PackagedTemplate is of whole texts, not of conversations.
	Pooled bool `json:",omitempty"`
	// BOS and EOS are the texts of the tokenizer's tokens at the beginning and the end of a sequence.
	BOS, EOS string
	// Sampling holds the values of generation_config.json; nil fields are absent there.
	Sampling Sampling
	// Warnings list settings that the package cannot represent.
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

// turnEnds are tokens that end a turn in chat formats although some config files name only another token.
var turnEnds = []string{"<|im_end|>", "<|eot_id|>", "<end_of_turn>"}

// ReadFacts reads the tokenizer of the checkpoint in dir and the facts of using it; no weights are needed.
func ReadFacts(dir string) (Facts, *tokenizer.Tokenizer, error) {
	if _, err := readSmall(dir, "config.json"); err != nil {
		return Facts{}, nil, err
	}
	t, err := LoadTokenizer(dir)
	if err != nil {
		return Facts{}, nil, err
	}
	f, err := readFacts(dir, t)
	return f, t, err
}

func readFacts(dir string, t *tokenizer.Tokenizer) (Facts, error) {
	f := Facts{Prefix: t.PrefixIDs(), Special: t.SpecialIDs(), Templates: map[string]string{}}
	var config endings
	var generation struct {
		Sampling
		endings
	}
	var tok struct {
		BOS      tokenText `json:"bos_token"`
		EOS      tokenText `json:"eos_token"`
		Template templates `json:"chat_template"`
	}
	var processor struct {
		Template templates `json:"chat_template"`
	}
	for _, x := range []struct {
		name string
		to   any
	}{
		{"generation_config.json", &generation}, {"tokenizer_config.json", &tok}, {"chat_template.json", &processor}, {"config.json", &config},
	} {
		b, err := ReadOptional(dir, x.name)
		if err != nil {
			return f, err
		}
		if b != nil {
			if err := json.Unmarshal(b, x.to); err != nil {
				return f, fmt.Errorf("%s: %v: %w", x.name, err, tensor.ErrCorrupt)
			}
		}
	}
	f.Sampling, f.BOS, f.EOS = generation.Sampling, string(tok.BOS), string(tok.EOS)
	if maps.Copy(f.Templates, tok.Template); len(f.Templates) == 0 {
		// The tokenizer of transformers 5.23 does not read this file, which processors of older multimodal models wrote.
		maps.Copy(f.Templates, processor.Template)
	}
	if err := f.readTemplates(dir); err != nil {
		return f, err
	}
	for _, e := range []*endings{&config, &generation.endings} {
		for ; e != nil; e = e.Text {
			f.stopAt(e.EOS...)
		}
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

// TakeTemplate makes text the chosen template, and adds the token that it writes after an answer to the stop tokens. It does
// nothing if text already is the chosen template.
func (f *Facts) TakeTemplate(text string, t *tokenizer.Tokenizer) {
	if text = f.opened(text); text == f.ChatTemplate {
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

// openByTemplate moves the ids before every text into the template. The engine encodes each text between two pictures or clips on its own, and would
// put the ids before all of them.
func (f *Facts) openByTemplate(t *tokenizer.Tokenizer) {
	if len(f.Prefix) == 0 {
		return
	}
	f.Opening, f.Prefix = t.Decode(f.Prefix, false), nil
	f.TakeTemplate(f.Templates[DefaultTemplate], t)
	f.Warnings = append(f.Warnings, fmt.Sprintf("%s comes from the chat template and not from the tokenizer, because the engine would put it before "+
		"every text between pictures: a prompt without the template has to begin with it", f.Opening))
}

// opened returns a template that begins with Opening.
func (f *Facts) opened(text string) string {
	if text == "" || f.Opening == "" {
		return text
	}
	if parsed, err := template.Parse("chat_template", text); err == nil {
		out, err := template.Chat(context.Background(), parsed, []template.Message{{Role: "user", Content: "U"}}, true,
			map[string]any{"bos_token": f.BOS, "eos_token": f.EOS}, template.Limits{})
		if err == nil && strings.HasPrefix(out, f.Opening) {
			return text
		}
	}
	return "{{ " + syntax.Quote(f.Opening) + " }}" + text
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

// endings are the ids at the end of a sequence in a configuration.
type endings struct {
	EOS  tokenIDs `json:"eos_token_id"`
	Text *endings `json:"text_config"`
}

// tokenIDs is a value of eos_token_id: null, a number or a list.
type tokenIDs []int32

// UnmarshalJSON implements [json.Unmarshaler].
func (ids *tokenIDs) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*[]int32)(ids)) == nil {
		return nil
	}
	*ids = make(tokenIDs, 1)
	if err := json.Unmarshal(b, &(*ids)[0]); err != nil {
		return fmt.Errorf("eos_token_id: %w", err)
	}
	return nil
}

// tokenText is a value of bos_token or eos_token: a text, or an object with the text as its content.
type tokenText string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *tokenText) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*string)(t)) == nil {
		return nil
	}
	var o struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(b, &o)
	*t = tokenText(o.Content)
	return err
}

// templates is a value of chat_template: one template, or a list of templates with names.
type templates map[string]string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *templates) UnmarshalJSON(b []byte) error {
	*t = templates{}
	var one string
	if json.Unmarshal(b, &one) == nil {
		if one != "" {
			(*t)[DefaultTemplate] = one
		}
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(b, &named); err != nil {
		return fmt.Errorf("chat_template: %w", err)
	}
	for _, n := range named {
		(*t)[n.Name] = n.Template
	}
	return nil
}

// maxTemplates bounds the files of templates that are read.
const maxTemplates = 100

// readTemplates reads the templates in .jinja files, which win over those of tokenizer_config.json.
func (f *Facts) readTemplates(dir string) error {
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
