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

// check returns the broken rules at their places in a section.
func check(sec recipes.Section, rules ...rule) error {
	var errs []error
	for _, r := range rules {
		if r.broken {
			errs = append(errs, sec.Errorf(r.key, "%s", r.text))
		}
	}
	return recipes.Join(errs...)
}
