package stage

import (
	"github.com/llmexport/llmexport/recipes"
)

// rule is a requirement on one option of a section.
type rule struct {
	broken bool
	key    string // of the option
	text   string // what it must be
}

// check returns the first broken rule at its place in a section.
func check(sec recipes.Section, rules ...rule) error {
	for _, r := range rules {
		if r.broken {
			return sec.Errorf(r.key, "%s", r.text)
		}
	}
	return nil
}
