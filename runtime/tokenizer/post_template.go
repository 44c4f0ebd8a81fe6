package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxID is the largest id there can be.
const maxID = math.MaxInt32

type templatePiece struct {
	Sequence *struct {
		ID   string  `json:"id"`
		Type *uint32 `json:"type_id"`
	}
	SpecialToken *struct {
		ID   string  `json:"id"`
		Type *uint32 `json:"type_id"`
	}
}

// readTemplate reads the post-processor TemplateProcessing, of which only the template for single texts matters.
func readTemplate(raw json.RawMessage, _ int) (p postProcessor, err error) {
	const kind, name = "post-processor", "TemplateProcessing"
	var c struct {
		Type    string          `json:"type"`
		Single  []templatePiece `json:"single"`
		Pair    []templatePiece `json:"pair"`
		Special map[string]struct {
			ID     *string  `json:"id"`
			IDs    []uint32 `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
		// Left over in files whose ByteLevel was overwritten with a template, and without effect.
		PrefixSpace json.RawMessage `json:"add_prefix_space"`
		TrimOffsets json.RawMessage `json:"trim_offsets"`
		UseRegex    json.RawMessage `json:"use_regex"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return p, err
	}
	for _, piece := range slices.Concat(c.Single, c.Pair) {
		if (piece.Sequence != nil) == (piece.SpecialToken != nil) {
			return p, fmt.Errorf("%s %q: a piece is neither a text nor a token: %w", kind, name, tensor.ErrCorrupt)
		}
		if s := piece.Sequence; s != nil && s.ID != "A" && s.ID != "B" {
			return p, fmt.Errorf("%s %q: text %.40q is neither A nor B: %w", kind, name, s.ID, tensor.ErrCorrupt)
		}
		if piece.Sequence != nil && piece.Sequence.Type == nil || piece.SpecialToken != nil && piece.SpecialToken.Type == nil {
			return p, fmt.Errorf("%s %q: a piece has no type_id: %w", kind, name, tensor.ErrCorrupt)
		}
	}
	for _, s := range c.Special {
		if s.ID == nil || s.IDs == nil || s.Tokens == nil {
			return p, fmt.Errorf("%s %q: a token lacks its id, ids or tokens: %w", kind, name, tensor.ErrCorrupt)
		}
	}
	text := false
	for _, piece := range c.Single {
		if piece.Sequence != nil {
			if text || piece.Sequence.ID != "A" {
				return p, unsupported(kind, `"TemplateProcessing" with more than one text`)
			}
			text = true
			continue
		}
		s, ok := c.Special[piece.SpecialToken.ID]
		if !ok {
			return p, fmt.Errorf("%s %q: %q is not among its tokens: %w", kind, name, piece.SpecialToken.ID, tensor.ErrCorrupt)
		}
		for _, id := range s.IDs {
			if id > maxID {
				return p, fmt.Errorf("%s %q: id %d is not a token: %w", kind, name, id, tensor.ErrCorrupt)
			}
			if text {
				p.suffix = append(p.suffix, int32(id))
			} else {
				p.prefix = append(p.prefix, int32(id))
			}
		}
	}
	if !text {
		return p, unsupported(kind, `"TemplateProcessing" without the text`)
	}
	p.parts, p.changes = len(c.Single) > 1, true
	return p, nil
}
