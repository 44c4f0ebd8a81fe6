package recipes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Errors are several mistakes in recipes, in the order of their places, at most one for a key and place.
type Errors []*Error

// maxShown is how many mistakes the text of Errors shows.
const maxShown = 10

func (e Errors) Error() string {
	var lines []string
	for _, x := range e[:min(len(e), maxShown)] {
		lines = append(lines, x.Error())
	}
	if n := len(e) - maxShown; n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more mistakes", n))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the mistakes, for [errors.As].
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, x := range e {
		list[i] = x
	}
	return list
}

// Join combines errors about recipes: nil if there are none, an *Error if there is one, otherwise Errors. Any other error comes
// first and is alone.
func Join(errs ...error) error {
	var list Errors
	for _, err := range errs {
		switch e := err.(type) {
		case nil:
		case *Error:
			list = append(list, e)
		case Errors:
			list = append(list, e...)
		default:
			return err
		}
	}
	list = list.sorted()
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return list
}

// sorted returns the mistakes by place, the first of those about the same key at the same place.
func (e Errors) sorted() Errors {
	type place struct {
		file         string
		line, column int
		key          string
	}
	seen := map[place]bool{}
	list := slices.DeleteFunc(slices.Clone(e), func(x *Error) bool {
		key, _, _ := strings.Cut(x.Message, ": ")
		at := place{x.File, x.Line, x.Column, key}
		again := seen[at]
		seen[at] = true
		return again
	})
	slices.SortStableFunc(list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return list
}

// mistakes collects what reading returns.
type mistakes []error

func (m *mistakes) add(err error) { *m = append(*m, err) }

func (m mistakes) err() error { return Join(m...) }
