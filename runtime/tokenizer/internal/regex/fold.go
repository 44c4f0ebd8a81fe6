package regex

import (
	"sync"
	"unicode"

	"golang.org/x/text/cases"

	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
)

// Foldings of one character to several: ß to ss, ﬁ to fi, and some hundred more. A pattern that may run into one when case
// is ignored is refused, because what it matches then depends on how Oniguruma puts its strings together.
type multiFolds struct {
	sources map[rune]bool    // characters that fold to several
	starts  map[[2]rune]bool // what these begin with
}

var multiFold = sync.OnceValue(func() multiFolds {
	m := multiFolds{map[rune]bool{}, map[[2]rune]bool{}}
	fold := cases.Fold()
	for _, r := range []chars.Range{{0xDF, 0xDF}, {0x130, 0x130}, {0x149, 0x149}, {0x1F0, 0x1F0}, {0x390, 0x390}, {0x3B0, 0x3B0}, {0x587, 0x587},
		{0x1E96, 0x1E9E}, {0x1F50, 0x1FFC}, {0xFB00, 0xFB17}} {
		for c := r[0]; c <= r[1]; c++ {
			if to := []rune(fold.String(string(c))); len(to) > 1 {
				m.sources[c] = true
				m.starts[[2]rune{to[0], to[1]}] = true
			}
		}
	}
	return m
})

// foldOf is the character that stands for all that differ from c in case only.
func foldOf(c rune) rune {
	low := c
	for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
		low = min(low, next)
	}
	// Capital letters come first in the tables, the small ones stand in the foldings.
	return unicode.ToLower(low)
}

// foldSet is c and all that differ from it in case only.
func foldSet(c rune) chars.Set {
	ranges := []chars.Range{{c, c}}
	for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
		ranges = append(ranges, chars.Range{next, next})
	}
	return chars.NewSet(ranges...)
}

// foldable are the characters with an upper or lower case.
var foldable = sync.OnceValue(func() []rune {
	var out []rune
	for c := rune('A'); c <= 0x1FFFF; c++ {
		if unicode.SimpleFold(c) != c {
			out = append(out, c)
		}
	}
	return out
})

// foldClosure adds to s what differs from its members in case only.
func foldClosure(s chars.Set) chars.Set {
	more := []chars.Range(nil)
	for _, c := range foldable() {
		if s.Has(c) {
			continue
		}
		for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
			if s.Has(next) {
				more = append(more, chars.Range{c, c})
				break
			}
		}
	}
	return s.Union(more)
}
