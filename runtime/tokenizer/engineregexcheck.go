package tokenizer

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkEngineRegex refuses a pattern that the engine does not read as Oniguruma does.
func checkEngineRegex(pattern string) error {
	re, strange, err := parseEngineRegex(pattern)
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

func matchesEmpty(branch []regexNode) bool {
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
