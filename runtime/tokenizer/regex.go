package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// The library `tokenizers` runs Oniguruma in its Ruby dialect; regexp2 is of .NET's. A pattern is
// rewritten piece by piece, and whatever does not mean the same in both, or was not checked to, is refused.

// regexTimeout bounds the time that a file's own pattern may spend on one piece of text.
const regexTimeout = 5 * time.Second

// compileRegex gives a function that lists the matches in a text. It finds none in a text that takes
// longer than regexTimeout.
func compileRegex(pattern string) (func(string) []span, error) {
	r := regexRewriter{in: pattern}
	if err := r.alternation(false, 0); err != nil {
		return nil, fmt.Errorf("regex %q: %w", pattern, err)
	}
	if r.pos < len(pattern) {
		return nil, fmt.Errorf("regex %q: unmatched parenthesis: %w", pattern, tensor.ErrCorrupt)
	}
	re, err := regexp2.Compile(r.out.String())
	if err != nil {
		return nil, fmt.Errorf("regex %q: %v: %w", pattern, err, tensor.ErrUnsupported)
	}
	re.MatchTimeout = regexTimeout
	return func(s string) []span {
		found, err := re.FindAllStringIndex(s, -1)
		if err != nil {
			return nil
		}
		spans := make([]span, len(found))
		for i, f := range found {
			spans[i] = span{f[0], f[1], true}
		}
		return spans
	}, nil
}

type regexRewriter struct {
	in  string
	pos int
	out strings.Builder
}

func (r *regexRewriter) peek(text string) bool { return strings.HasPrefix(r.in[r.pos:], text) }

func (r *regexRewriter) refuse(what string) error {
	return fmt.Errorf("%s at byte %d: %w", what, r.pos, tensor.ErrUnsupported)
}

func (r *regexRewriter) truncated() error {
	return fmt.Errorf("ends too early: %w", tensor.ErrCorrupt)
}

// alternation rewrites up to the end or to a closing parenthesis. With fold, letters match in both cases.
func (r *regexRewriter) alternation(fold bool, depth int) error {
	if depth > maxNesting {
		return r.refuse("group nested so deep")
	}
	quantifiable := false
	before := byte(0) // the last literal letter, for foldings of two letters to one
	for r.pos < len(r.in) {
		c := r.in[r.pos]
		literal := byte(0)
		switch {
		case c == ')':
			return nil
		case c == '|':
			r.pos++
			r.out.WriteByte('|')
			quantifiable, before = false, 0
			continue
		case strings.IndexByte("?*+{", c) >= 0:
			if !quantifiable {
				return r.refuse("quantifier")
			}
			if err := r.quantifier(); err != nil {
				return err
			}
			quantifiable, before = false, 0
			continue
		case c == '(':
			ok, err := r.group(fold, depth)
			if err != nil {
				return err
			}
			quantifiable, before = ok, 0
			continue
		case c == '[':
			if err := r.class(fold); err != nil {
				return err
			}
		case c == '\\':
			if err := r.escape(false); err != nil {
				return err
			}
		case c == '.':
			r.pos++
			r.out.WriteString(`[^\n]`)
		case c == '$':
			// In Ruby's dialect the end of any line.
			r.pos++
			r.out.WriteString(`(?=\n|\z)`)
			quantifiable, before = false, 0
			continue
		case c == '^' || c == '}' || c == ']':
			return r.refuse(fmt.Sprintf("%q", c))
		default:
			ch, n := utf8.DecodeRuneInString(r.in[r.pos:])
			if fold && ch >= utf8.RuneSelf {
				return r.refuse("letter outside ASCII in a group that ignores case")
			}
			if fold {
				literal = byte(unicode.ToLower(ch))
				// ff, fi, fl, ss and st fold to one letter of their own.
				if slices.Contains([]string{"ff", "fi", "fl", "ss", "st"}, string([]byte{before, literal})) {
					return r.refuse("letters that fold to a ligature")
				}
				r.out.WriteString("[" + foldLetter(ch) + "]")
			} else {
				r.out.WriteString(quoteRegex(string(ch)))
			}
			r.pos += n
		}
		quantifiable, before = true, literal
	}
	return nil
}

// foldLetter lists what an ASCII character matches when case is ignored, escaped for a class.
func foldLetter(c rune) string {
	switch {
	case c == 's' || c == 'S':
		return "sSſ"
	case c == 'k' || c == 'K':
		return "kK\u212A"
	case unicode.IsLetter(c):
		return string([]rune{unicode.ToLower(c), unicode.ToUpper(c)})
	}
	return quoteClass(c)
}

func (r *regexRewriter) quantifier() error {
	start := r.pos
	if r.in[r.pos] == '{' {
		r.pos++
		digits := func() bool {
			from := r.pos
			for r.pos < len(r.in) && r.in[r.pos] >= '0' && r.in[r.pos] <= '9' {
				r.pos++
			}
			return r.pos > from && r.pos-from < 5
		}
		if !digits() {
			return r.refuse("repetition without a lower bound")
		}
		if r.peek(",") {
			r.pos++
			if !r.peek("}") && !digits() {
				return r.refuse("repetition")
			}
		}
		if !r.peek("}") {
			return r.refuse("repetition")
		}
		r.pos++
		if r.peek("?") || r.peek("+") {
			return r.refuse("lazy or possessive repetition")
		}
	} else {
		r.pos++
		if r.peek("+") {
			return r.refuse("possessive quantifier")
		}
		if r.peek("?") {
			r.pos++
		}
	}
	r.out.WriteString(r.in[start:r.pos])
	return nil
}

// group reports whether a quantifier may follow.
func (r *regexRewriter) group(fold bool, depth int) (bool, error) {
	r.pos++
	quantifiable := true
	switch {
	case !r.peek("?"):
		r.out.WriteString("(?:")
	case r.peek("?:"):
		r.pos += 2
		r.out.WriteString("(?:")
	case r.peek("?i:"):
		r.pos += 3
		r.out.WriteString("(?:")
		fold = true
	case r.peek("?=") || r.peek("?!"):
		r.out.WriteString("(" + r.in[r.pos:r.pos+2])
		r.pos += 2
		quantifiable = false
	default:
		return false, r.refuse("kind of group")
	}
	if err := r.alternation(fold, depth+1); err != nil {
		return false, err
	}
	if !r.peek(")") {
		return false, r.truncated()
	}
	r.pos++
	r.out.WriteByte(')')
	return quantifiable, nil
}

// class rewrites a bracket expression.
func (r *regexRewriter) class(fold bool) error {
	r.pos++
	r.out.WriteByte('[')
	if r.peek("^") {
		r.pos++
		r.out.WriteByte('^')
	}
	if r.peek("]") {
		return r.refuse("empty class")
	}
	for r.pos < len(r.in) && !r.peek("]") {
		if r.peek("[") || r.peek("&&") {
			return r.refuse("set operation in a class")
		}
		if r.peek(`\`) && strings.IndexByte("pPsSdD", r.in[min(r.pos+1, len(r.in)-1)]) >= 0 {
			if err := r.escape(true); err != nil {
				return err
			}
			continue
		}
		lo, err := r.classChar()
		if err != nil {
			return err
		}
		if !r.peek("-") || r.pos+1 < len(r.in) && r.in[r.pos+1] == ']' {
			if fold && lo >= utf8.RuneSelf {
				return r.refuse("letter outside ASCII in a group that ignores case")
			}
			if fold {
				r.out.WriteString(foldLetter(lo))
			} else {
				r.out.WriteString(quoteClass(lo))
			}
			continue
		}
		r.pos++
		if fold {
			return r.refuse("range in a group that ignores case")
		}
		hi, err := r.classChar()
		if err != nil {
			return err
		}
		if hi < lo {
			return fmt.Errorf("range %q to %q: %w", lo, hi, tensor.ErrCorrupt)
		}
		r.out.WriteString(quoteClass(lo) + "-" + quoteClass(hi))
	}
	if !r.peek("]") {
		return r.truncated()
	}
	r.pos++
	r.out.WriteByte(']')
	return nil
}

// classChar reads one character of a class, an escaped one too.
func (r *regexRewriter) classChar() (rune, error) {
	if !r.peek(`\`) {
		c, n := utf8.DecodeRuneInString(r.in[r.pos:])
		if n == 0 {
			return 0, r.truncated()
		}
		r.pos += n
		return c, nil
	}
	if r.pos+1 >= len(r.in) {
		return 0, r.truncated()
	}
	c, ok := plainEscape(r.in[r.pos+1])
	if !ok {
		return 0, r.refuse("escape")
	}
	r.pos += 2
	return c, nil
}

// plainEscape is the character that a backslash and c stand for.
func plainEscape(c byte) (rune, bool) {
	switch c {
	case 'r':
		return '\r', true
	case 'n':
		return '\n', true
	case 't':
		return '\t', true
	case 'f':
		return '\f', true
	case 'v':
		return '\v', true
	}
	// Punctuation stands for itself.
	return rune(c), c > ' ' && c < 0x7F && !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z')
}

// quoteClass escapes a character for use inside a class.
func quoteClass(c rune) string {
	switch c {
	case '\r':
		return `\r`
	case '\n':
		return `\n`
	}
	if c < utf8.RuneSelf && strings.ContainsRune(`\]^-[&`, c) {
		return `\` + string(c)
	}
	return string(c)
}

// quoteRegex escapes a literal text for use in a pattern, in Oniguruma's dialect and in that of .mtok.
func quoteRegex(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strings.ContainsRune(`\.+*?()|[]{}^$`, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
