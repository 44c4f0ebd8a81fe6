package arch

import (
	"fmt"
	"slices"
	"strings"
)

// maxListed bounds the problems in one error; files with more of them are not models.
const maxListed = 100

// problem is one reason why a checkpoint is not described.
type problem struct {
	kind error // tensor.ErrCorrupt, tensor.ErrUnsupported, or nil for a mistake of the caller
	text string
}

// problems are all problems of one file, as one error.
type problems struct {
	scope string
	list  []problem
}

func (p problems) Error() string {
	texts := make([]string, 0, len(p.list))
	for _, q := range p.list {
		texts = append(texts, q.text)
	}
	return p.scope + ": " + enumerate(texts, maxListed, "; ")
}

// Unwrap returns the kinds of the problems, so that errors.Is finds tensor.ErrUnsupported.
func (p problems) Unwrap() []error {
	var kinds []error
	for _, q := range p.list {
		if q.kind != nil && !slices.Contains(kinds, q.kind) {
			kinds = append(kinds, q.kind)
		}
	}
	return kinds
}

// enumerate joins the first limit texts and counts the rest.
func enumerate(texts []string, limit int, separator string) string {
	if len(texts) <= limit {
		return strings.Join(texts, separator)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(texts[:limit], separator), separator, len(texts)-limit)
}
