package tokenizer

import (
	"encoding/json"
	"fmt"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// The pre-tokenizers that cut a text by the class of each character.

// charStage cuts at single characters of a class, as Split does at the matches of a pattern.
type charStage struct {
	has      func(rune) bool
	behavior behavior
	// regex is a pattern for one such character, for the writer of .mtok.
	regex string
}

func (p *charStage) split(in piece, yield func(piece)) {
	s := in.text
	switch p.behavior {
	case isolated, removed:
		from := 0
		for i := 0; i < len(s); {
			c, n := utf8.DecodeRuneInString(s[i:])
			if p.has(c) {
				if from < i {
					yield(in.part(from, i))
				}
				if p.behavior == isolated {
					yield(in.part(i, i+n))
				}
				from = i + n
			}
			i += n
		}
		if from < len(s) {
			yield(in.part(from, len(s)))
		}
	default:
		stage := splitStage{behavior: p.behavior, find: func(s string) []regex.Span {
			var out []regex.Span
			for i, c := range s {
				if p.has(c) {
					out = append(out, regex.Span{Start: i, End: i + utf8.RuneLen(c)})
				}
			}
			return out
		}}
		stage.split(in, yield)
	}
}

// punctuation is that of the pre-tokenizers Punctuation and BertPreTokenizer.
var punctuation = sync.OnceValue(func() *chars.Table {
	return chars.NewTable(chars.SetOf(unicode.P).Intersect(chars.SetOf(unicode8)).Union(chars.SetOf(morePunctuation)))
})

// morePunctuation is punctuation only here: all of ASCII but letters, digits, spaces and control characters, and two more.
var morePunctuation = chars.Ranges(0x21, 0x2F, 0x3A, 0x40, 0x5B, 0x60, 0x7B, 0x7E, 0x166D, 0x166D, 0x111C9, 0x111C9)

// punctuationRegex is about the same as a class.
const punctuationRegex = `[!-/:-@\[\\\]^_` + "`" + `{-~\p{P}]`

func isPunctuation(c rune) bool { return punctuation().Has(c) }

// wordClass is \w of the library's regular expressions other than Oniguruma's.
var wordClass = sync.OnceValue(func() *chars.Table {
	return chars.NewTable(regex.Word().Union(chars.Set{{0x200C, 0x200D}}))
})

// isSpace is White_Space.
func isSpace(c rune) bool { return chars.Classes()[c]&chars.Space != 0 }

// blanks are cut out by WhitespaceSplit, and by BertPreTokenizer before it cuts at punctuation.
var blanks = &charStage{isSpace, removed, `\s`}

func readPunctuation(raw json.RawMessage, _ int) (preTokenizer, error) {
	c := struct {
		Type     string   `json:"type"`
		Behavior behavior `json:"behavior"`
	}{Behavior: isolated}
	if err := setup("pre-tokenizer", "Punctuation", raw, &c); err != nil {
		return nil, err
	}
	return &charStage{isPunctuation, c.Behavior, punctuationRegex}, c.Behavior.check("Punctuation")
}

func readCharDelimiterSplit(raw json.RawMessage, _ int) (preTokenizer, error) {
	var c struct {
		Type      string `json:"type"`
		Delimiter string `json:"delimiter"`
	}
	if err := setup("pre-tokenizer", "CharDelimiterSplit", raw, &c); err != nil {
		return nil, err
	}
	delimiter, n := utf8.DecodeRuneInString(c.Delimiter)
	if n == 0 || n != len(c.Delimiter) {
		return nil, fmt.Errorf("pre-tokenizer \"CharDelimiterSplit\": delimiter %q is not one character: %w", c.Delimiter, tensor.ErrCorrupt)
	}
	return &charStage{func(c rune) bool { return c == delimiter }, removed, regex.Quote(c.Delimiter)}, nil
}

// whitespaceStage is the pre-tokenizer Whitespace: runs of word characters and runs of others, without the white space.
type whitespaceStage struct{}

func (whitespaceStage) split(in piece, yield func(piece)) {
	const blank, word, other = 0, 1, 2
	s, words := in.text, wordClass()
	kind, from := blank, 0
	for i, c := range s {
		next := other
		switch {
		case isSpace(c):
			next = blank
		case words.Has(c):
			next = word
		}
		if next != kind {
			if kind != blank {
				yield(in.part(from, i))
			}
			kind, from = next, i
		}
	}
	if kind != blank {
		yield(in.part(from, len(s)))
	}
}

// fixedStage is the pre-tokenizer FixedLength: pieces of that many characters.
type fixedStage int

func readFixedLength(raw json.RawMessage, _ int) (preTokenizer, error) {
	c := struct {
		Type   string `json:"type"`
		Length int    `json:"length"`
	}{Length: 5}
	if err := setup("pre-tokenizer", "FixedLength", raw, &c); err != nil {
		return nil, err
	}
	if c.Length < 0 {
		return nil, fmt.Errorf("pre-tokenizer \"FixedLength\": length %d: %w", c.Length, tensor.ErrCorrupt)
	}
	if c.Length == 0 { // which the library accepts
		return nil, unsupported("pre-tokenizer", `"FixedLength" of no length`)
	}
	return fixedStage(c.Length), nil
}

func (p fixedStage) split(in piece, yield func(piece)) {
	s := in.text
	from, count := 0, 0
	for i := range s {
		if count == int(p) {
			yield(in.part(from, i))
			from, count = i, 0
		}
		count++
	}
	yield(in.part(from, len(s)))
}
