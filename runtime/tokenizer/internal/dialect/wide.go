package dialect

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// isWide reports whether the engine hands a pattern to the regular expressions of the C++ library, which work on
// code points: patterns with characters outside ASCII and without properties.
func isWide(pattern string) bool {
	return strings.ContainsFunc(pattern, func(r rune) bool { return r >= utf8.RuneSelf }) &&
		!strings.Contains(pattern, `\p{`) && !strings.Contains(pattern, `\P{`)
}

// wideRegex is a sequence of characters and classes, of which the last one may be repeated. This is as much of the C++
// dialect as all its libraries agree on and as the known tokenizers need.
type wideRegex struct {
	atoms    []wideAtom
	repeated bool
}

// wideAtom is a class of pairs, first and last character.
type wideAtom struct {
	ranges  [][2]rune
	negated bool
}

func (a *wideAtom) has(r rune) bool {
	return slices.ContainsFunc(a.ranges, func(p [2]rune) bool { return p[0] <= r && r <= p[1] }) != a.negated
}

func parseWide(pattern string) (*wideRegex, error) {
	refuse := func(what string) (*wideRegex, error) {
		return nil, fmt.Errorf("regex %.400q, which has characters outside ASCII: %s: %w", pattern, what, tensor.ErrUnsupported)
	}
	if !utf8.ValidString(pattern) {
		return refuse("not UTF-8")
	}
	re := &wideRegex{}
	for in := []rune(pattern); len(in) > 0; {
		switch c := in[0]; {
		case c == '+' && len(in) == 1 && len(re.atoms) > 0:
			re.repeated = true
			in = nil
		case c == '[':
			end := slices.Index(in, ']')
			if end < 0 {
				return refuse("class without an end")
			}
			class := in[1:end]
			in = in[end+1:]
			a := wideAtom{}
			if len(class) > 0 && class[0] == '^' {
				a.negated = true
				class = class[1:]
			}
			if len(class) == 0 {
				return refuse("empty class")
			}
			for len(class) > 0 {
				lo, hi := class[0], class[0]
				class = class[1:]
				if len(class) > 1 && class[0] == '-' {
					hi = class[1]
					class = class[2:]
				}
				if strings.ContainsRune(`\[-^`, lo) || strings.ContainsRune(`\[-^`, hi) || lo > hi {
					return refuse(fmt.Sprintf("%q in a class", string(lo)))
				}
				a.ranges = append(a.ranges, [2]rune{lo, hi})
			}
			re.atoms = append(re.atoms, a)
		case strings.ContainsRune(`^$\.*+?()[]{}|`, c):
			return refuse(fmt.Sprintf("%q", string(c)))
		default:
			re.atoms = append(re.atoms, wideAtom{ranges: [][2]rune{{c, c}}})
			in = in[1:]
		}
	}
	return re, nil
}

// wideRun is how many characters one match may have. The C++ library recurses for each: with GCC's on x86-64 a thread
// with a megabyte of stack dies between 2000 and 4096 of them, one with eight between 20000 and 40000.
const wideRun = 2000

// find appends the matches in s. A byte that is not UTF-8 counts as U+FFFD.
func (re *wideRegex) find(dst []regex.Span, s string) ([]regex.Span, error) {
	var err error
	for at := 0; at < len(s); {
		end, count := at, 0
		for end < len(s) {
			r, n := utf8.DecodeRuneInString(s[end:])
			if !re.atoms[min(count, len(re.atoms)-1)].has(r) {
				break
			}
			end += n
			if count++; count == len(re.atoms) && !re.repeated {
				break
			}
		}
		if count < len(re.atoms) {
			_, n := utf8.DecodeRuneInString(s[at:])
			at += n
			continue
		}
		if count > wideRun {
			err = fmt.Errorf("a match of %d characters, %.40q...: the C++ library overflows its stack: %w", count, s[at:end], tensor.ErrUnsupported)
		}
		dst = append(dst, regex.Span{Start: at, End: end})
		at = end
	}
	return dst, err
}
