// Package dialect has the regular expressions of MNN's LLM engine: [Compile] matches a pattern of a pre-tokenizer as the
// engine does, [Translate] writes a pattern of a tokenizer.json for it.
package dialect

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// Find appends the matches of a pattern in s to dst. It returns an error if the engine would not finish s; the rest has no
// matches then.
type Find func(dst []regex.Span, s string) ([]regex.Span, error)

// Compile reads a pattern as the engine does, which silently drops unsupported branches. The error is for a pattern without
// any other.
func Compile(pattern string) (Find, error) {
	if isWide(pattern) {
		re, err := parseWide(pattern)
		if err != nil {
			return nil, err
		}
		return re.find, nil
	}
	re, _, err := parse(pattern)
	if err != nil {
		return nil, err
	}
	return re.find, nil
}

// check rejects a pattern that the engine does not read as Oniguruma does.
func check(pattern string) error {
	re, strange, err := parse(pattern)
	if err != nil {
		return err
	}
	if len(strange) > 0 {
		return fmt.Errorf("regex %.400q: %s: %w by the engine", pattern, strange[0], tensor.ErrUnsupported)
	}
	for _, b := range re.branches {
		if matchesEmpty(b) {
			return fmt.Errorf("regex %.400q: a match may be empty: %w by the engine", pattern, tensor.ErrUnsupported)
		}
	}
	return nil
}

func matchesEmpty(branch []node) bool {
	for _, n := range branch {
		if n.kind == nodeNot || n.min == 0 {
			continue
		}
		if n.kind == nodeSet {
			return false
		}
		empty := false
		for _, b := range n.branches {
			empty = empty || matchesEmpty(b)
		}
		if !empty {
			return false
		}
	}
	return true
}
