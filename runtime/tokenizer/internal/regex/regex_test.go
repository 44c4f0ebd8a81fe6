package regex

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/tokenizertest"
)

// hostile are texts that make backtracking expensive, of about n bytes.
func hostile(n int) map[string]string {
	return map[string]string{
		"letter":  strings.Repeat("a", n),
		"space":   strings.Repeat(" ", n),
		"digit":   strings.Repeat("1", n),
		"newline": strings.Repeat("\n", n),
		"pairs":   strings.Repeat("aA", n/2),
		"han":     strings.Repeat("的", n/3),
		"mixed":   strings.Repeat("ab1. \n", n/6) + strings.Repeat("a", n/8),
	}
}

// explosive are patterns that take exponential or quadratic time where what failed is not remembered.
var explosive = []string{
	`(?:a+)+b`, `(?:a|a)*b`, `(?:a|aa)+$b`, `a*a*a*a*b`, `a*b|a`, `\s+$`, `\p{L}++x|.`, `(?>\p{L}*\d?)x|.`, `(?=a*b)a|a`, `(?!a*b)a`, `(?<=a*b)a|a`, `(?<!b.*)a`,
	`(?:(?:a*)*)*b`, `(?:a*b?)*c`, `(?>(?:a|aa)+)b`, `(?:a??)*?b`, `(?:(?=a*)a)*b`, `a{2,50}b`, `(?:.*){3}x|(?:.+)+y`,
}

// patterns are those that are held to the library.
func patterns(t testing.TB) (list []string) {
	t.Helper()
	var g struct{ Patterns []struct{ Pattern string } }
	tokenizertest.ReadJSON(t, "pre.json", &g)
	for _, p := range g.Patterns {
		list = append(list, p.Pattern)
	}
	if len(list) < 80 {
		t.Fatalf("%d patterns", len(list))
	}
	return list
}

// stepsPerByte bounds the instructions for each byte of text and each instruction of the pattern: every state is tried at every
// byte once, from look-arounds a second time, and scanning runs takes as much again.
const stepsPerByte = 8

func TestRegexLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, pattern := range append(patterns(t), explosive...) {
		re, err := parseRegex(pattern)
		if err != nil {
			continue
		}
		for name, text := range hostile(20000) {
			m := re.matcher(text)
			m.findAll()
			if bound := stepsPerByte * len(text) * len(re.prog) << re.nesting; m.steps > bound {
				t.Errorf("%q on %s: %d steps, want at most %d", pattern, name, m.steps, bound)
			}
			re.release(m)
		}
	}
}

// TestRegexRefuses: each is refused by name.
func TestRegexRefuses(t *testing.T) {
	for pattern, want := range map[string]struct {
		kind error
		text string
	}{
		`(a)\1`: {tensor.ErrUnsupported, "back reference"}, `\k<a>`: {tensor.ErrUnsupported, "back reference"}, `\g<1>`: {tensor.ErrUnsupported, "call of a group"},
		`(?(1)a)`: {tensor.ErrUnsupported, "condition"}, `(?~a)`: {tensor.ErrUnsupported, "absent"}, `(?{x})`: {tensor.ErrUnsupported, "callout"},
		`(*FAIL)`: {tensor.ErrUnsupported, "callout"}, `(?x: a)`: {tensor.ErrUnsupported, "kind of group"}, `\X`: {tensor.ErrUnsupported, "escape"},
		`\G`: {tensor.ErrUnsupported, "escape"}, `\K`: {tensor.ErrUnsupported, "escape"}, `\p{Nothing}`: {tensor.ErrUnsupported, "property"},
		`(?i:ß)`: {tensor.ErrUnsupported, "folds to several"}, `(?i:fi)`: {tensor.ErrUnsupported, "fold to a single"}, `a{2000}`: {tensor.ErrUnsupported, "that often"},
		`(?:(?:(?:a{99}){99}){99})`: {tensor.ErrUnsupported, "that large"}, `(?:a?){3}`: {tensor.ErrUnsupported, "can be empty"},
		strings.Repeat("(", 200): {tensor.ErrUnsupported, "nested so deep"}, strings.Repeat("[", 200): {tensor.ErrUnsupported, "nested so deep"},
		`(?:(?:(?:(?:a*)*)*)*)*`: {tensor.ErrUnsupported, "nested so deep"}, `(?<=(?>a))`: {tensor.ErrUnsupported, "atomic group in a look-behind"},
		`(?=a)*`: {tensor.ErrCorrupt, "quantifier of an assertion"}, `+`: {tensor.ErrCorrupt, "without a target"}, `a)`: {tensor.ErrCorrupt, "parenthesis"},
		`(a`: {tensor.ErrCorrupt, "without end"}, `[a`: {tensor.ErrCorrupt, "without end"}, `[b-a]`: {tensor.ErrCorrupt, "range"}, `a\`: {tensor.ErrCorrupt, "backslash"},
		"\xff": {tensor.ErrCorrupt, "UTF-8"},
	} {
		if _, err := parseRegex(pattern); !errors.Is(err, want.kind) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%.40q: %v, want %q", pattern, err, want.text)
		}
	}
}

// FuzzRegex: what compiles finds matches in order, at characters, in bounded time.
func FuzzRegex(f *testing.F) {
	texts := tokenizertest.Corpus(f)
	n := 0
	for i, p := range patterns(f) {
		f.Add(p, texts[i])
		n++
	}
	for _, p := range explosive {
		f.Add(p, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaab1 \nc")
		n++
	}
	f.Add("[[:]l+a]\x00\x00\x01\x00]]+", "½/cup")
	if n < 100 {
		f.Fatalf("only %d seeds", n)
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		re, err := parseRegex(pattern)
		if err != nil {
			if re != nil || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		text = strings.ToValidUTF8(text, "\ufffd")
		m := re.matcher(text)
		defer re.release(m)
		done := 0
		for _, sp := range m.findAll() {
			if sp.Start < done || sp.End < sp.Start || sp.End > len(text) || sp.Start < len(text) && !utf8.RuneStart(text[sp.Start]) {
				t.Fatalf("match %v behind %d in %q", sp, done, text)
			}
			done = sp.End
		}
		if bound := stepsPerByte * (len(text) + 2) * (len(re.prog) + 2) << re.nesting; m.steps > bound {
			t.Fatalf("%d steps, want at most %d", m.steps, bound)
		}
	})
}

// TestYoungLetters: what Unicode has given a category since the package unicode was made is not among the rest.
func TestYoungLetters(t *testing.T) {
	const young, unassigned = "\U00010D50", "\u0378"
	for pattern, want := range map[string]int{`\p{C}`: 1, `\P{C}`: 1, `\p{Cn}`: 1, `\p{L}`: 1, `[\P{C}&&\p{Lu}]`: 1, `\p{Cf}`: 0} {
		find, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found := find(young + unassigned)
		if len(found) != want || pattern == `\P{C}` && found[0].Start != 0 || pattern == `\p{C}` && found[0].Start != len(young) {
			t.Errorf("%s: %v", pattern, found)
		}
	}
}
