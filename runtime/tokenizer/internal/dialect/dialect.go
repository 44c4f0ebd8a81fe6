// Package dialect is the regular expressions of MNN's LLM engine: how it reads the pattern of a pre-tokenizer and what it matches
// ([Compile]), and how to say in it what a pattern of a tokenizer.json says ([Translate]).
package dialect

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// Find appends the matches of a pattern in s to dst. An error says that the engine would not get through s; from there on
// nothing matches.
type Find func(dst []regex.Span, s string) ([]regex.Span, error)

// Compile reads a pattern as the engine does. What it does not support is left out without a word there; it is an
// error where nothing is left.
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

// check refuses a pattern that the engine does not read as Oniguruma does.
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
