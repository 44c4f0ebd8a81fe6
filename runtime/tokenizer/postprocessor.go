package tokenizer

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

type templatePiece struct {
	Sequence *struct {
		ID   string `json:"id"`
		Type int    `json:"type_id"`
	}
	SpecialToken *struct {
		ID   string `json:"id"`
		Type int    `json:"type_id"`
	}
}

// readPostProcessor fills the ids around a text.
func (t *Tokenizer) readPostProcessor(raw json.RawMessage) error {
	seen := false
	var read func(raw json.RawMessage, depth int) error
	read = func(raw json.RawMessage, depth int) error {
		const kind = "post-processor"
		name, err := componentType(kind, raw)
		if err != nil {
			return err
		}
		switch {
		case name == "":
			return nil
		case name == "ByteLevel":
			// Only changes offsets, which are not computed here.
			var c struct {
				Type        string `json:"type"`
				PrefixSpace bool   `json:"add_prefix_space"`
				TrimOffsets bool   `json:"trim_offsets"`
				UseRegex    bool   `json:"use_regex"`
			}
			return setup(kind, name, raw, &c)
		case name == "TemplateProcessing" && !seen:
			seen = true
			return t.readTemplate(raw)
		case name == "TemplateProcessing":
			return unsupported(kind, "with two templates")
		case name == "Sequence":
			var c struct {
				Type       string            `json:"type"`
				Processors []json.RawMessage `json:"processors"`
			}
			if err := setup(kind, name, raw, &c); err != nil {
				return err
			}
			if depth == 0 {
				return unsupported(kind, "nested so deep")
			}
			for _, p := range c.Processors {
				if err := read(p, depth-1); err != nil {
					return err
				}
			}
			return nil
		}
		return unsupported(kind, fmt.Sprintf("%q", name))
	}
	return read(raw, maxNesting)
}

func (t *Tokenizer) readTemplate(raw json.RawMessage) error {
	const kind, name = "post-processor", "TemplateProcessing"
	var c struct {
		Type    string          `json:"type"`
		Single  []templatePiece `json:"single"`
		Pair    json.RawMessage `json:"pair"`
		Special map[string]struct {
			ID     string   `json:"id"`
			IDs    []uint32 `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return err
	}
	text := false
	for _, p := range c.Single {
		switch {
		case p.Sequence != nil && p.SpecialToken == nil:
			if text || p.Sequence.ID != "A" {
				return unsupported(kind, `"TemplateProcessing" with more than one text`)
			}
			text = true
		case p.SpecialToken != nil && p.Sequence == nil:
			s, ok := c.Special[p.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("%s %q: %q is not among its tokens: %w", kind, name, p.SpecialToken.ID, tensor.ErrCorrupt)
			}
			for _, id := range s.IDs {
				if int64(id) >= int64(len(t.known)) || !t.known[id] {
					return fmt.Errorf("%s %q: id %d is no token: %w", kind, name, id, tensor.ErrCorrupt)
				}
				if text {
					t.suffix = append(t.suffix, int32(id))
				} else {
					t.prefix = append(t.prefix, int32(id))
				}
			}
		default:
			return fmt.Errorf("%s %q: a piece is neither a text nor a token: %w", kind, name, tensor.ErrCorrupt)
		}
	}
	if !text {
		return unsupported(kind, `"TemplateProcessing" without the text`)
	}
	return nil
}
