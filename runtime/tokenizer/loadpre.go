package tokenizer

import (
	"encoding/json"
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// readPreTokenizer gives the stages, sequences unfolded.
func readPreTokenizer(raw json.RawMessage, depth int) ([]stage, error) {
	const kind = "pre-tokenizer"
	name, err := componentType(kind, raw)
	if err != nil {
		return nil, err
	}
	switch name {
	case "":
		return nil, nil
	case "ByteLevel":
		c := struct {
			Type        string `json:"type"`
			PrefixSpace bool   `json:"add_prefix_space"`
			TrimOffsets bool   `json:"trim_offsets"`
			UseRegex    bool   `json:"use_regex"`
		}{UseRegex: true}
		if err := setup(kind, name, raw, &c); err != nil {
			return nil, err
		}
		return []stage{&byteLevelStage{c.PrefixSpace, c.UseRegex}}, nil
	case "Digits":
		var c struct {
			Type       string `json:"type"`
			Individual bool   `json:"individual_digits"`
		}
		if err := setup(kind, name, raw, &c); err != nil {
			return nil, err
		}
		return []stage{digitsStage(c.Individual)}, nil
	case "Split":
		p, err := readSplit(raw)
		if err != nil {
			return nil, err
		}
		return []stage{p}, nil
	case "Sequence":
		var c struct {
			Type          string            `json:"type"`
			PreTokenizers []json.RawMessage `json:"pretokenizers"`
		}
		if err := setup(kind, name, raw, &c); err != nil {
			return nil, err
		}
		if depth == 0 {
			return nil, unsupported(kind, "nested so deep")
		}
		var all []stage
		for _, p := range c.PreTokenizers {
			stages, err := readPreTokenizer(p, depth-1)
			if err != nil {
				return nil, err
			}
			all = append(all, stages...)
		}
		return all, nil
	}
	return nil, unsupported(kind, fmt.Sprintf("%q", name))
}

func readSplit(raw json.RawMessage) (*splitStage, error) {
	const kind, name = "pre-tokenizer", "Split"
	var c struct {
		Type    string `json:"type"`
		Pattern struct {
			Regex  *string
			String *string
		} `json:"pattern"`
		Behavior behavior `json:"behavior"`
		Invert   bool     `json:"invert"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return nil, err
	}
	p := &splitStage{behavior: c.Behavior, invert: c.Invert}
	switch c.Behavior {
	case isolated, removed, mergedWithPrevious, mergedWithNext, contiguous:
	default:
		return nil, fmt.Errorf("%s %q: behavior %q: %w", kind, name, c.Behavior, tensor.ErrCorrupt)
	}
	switch {
	case c.Pattern.Regex != nil && c.Pattern.String == nil:
		p.regex = *c.Pattern.Regex
		if p.scan = scanners[p.regex]; p.scan == nil {
			find, err := compileRegex(p.regex)
			if err != nil {
				return nil, fmt.Errorf("%s %q: %w", kind, name, err)
			}
			p.find = find
		}
	case c.Pattern.String != nil && c.Pattern.Regex == nil && *c.Pattern.String != "":
		p.regex = quoteRegex(*c.Pattern.String)
		p.find = findLiteral(*c.Pattern.String)
	default:
		return nil, fmt.Errorf("%s %q has no pattern: %w", kind, name, tensor.ErrCorrupt)
	}
	return p, nil
}

// checkByteLevel demands that the text becomes bytes, once and at the end.
func checkByteLevel(stages []stage) error {
	for i, s := range stages {
		if _, ok := s.(*byteLevelStage); ok {
			if i != len(stages)-1 {
				return unsupported("pre-tokenizer", `behind "ByteLevel"`)
			}
			return nil
		}
	}
	return unsupported("pre-tokenizer", `without "ByteLevel"`)
}
