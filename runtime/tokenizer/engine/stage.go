package engine

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/bytelevel"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/dialect"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/mtok"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// stage is a pre-tokenizer node. split calls yield with the pieces of s, which is not empty, in order; some may be empty.
// An error describes why the engine does not finish.
type stage interface {
	split(s string, yield func(string)) error
}

// newStages unfolds a pre-tokenizer node. No stage is a text that is one piece.
func newStages(n *mtok.PreTokenizer) ([]stage, error) {
	var all []stage
	growth := 1.0
	var walk func(n *mtok.PreTokenizer) error
	walk = func(n *mtok.PreTokenizer) error {
		switch n.Tag {
		case mtok.PreByteLevel:
			growth *= 2
			if n.Flag {
				find, err := dialect.Compile(regex.GPT2)
				if err != nil {
					return err
				}
				all = append(all, &splitStage{find: find, each: true})
			}
			all = append(all, mapStage{})
		case mtok.PreDigits:
			if n.Flag {
				all = append(all, digitStage{})
			}
		case mtok.PreMetaspace:
			growth *= 2 * float64(max(len(n.Replacement), 1))
			all = append(all, &metaspaceStage{n.Replacement, n.Flag})
		case mtok.PreSplit:
			find, err := dialect.Compile(n.Regex)
			if err != nil {
				return err
			}
			all = append(all, &splitStage{find: find, invert: n.Flag, behavior: n.Behavior})
		case mtok.PreBert:
			all = append(all, bertStage{})
		}
		for i := range n.Children {
			if err := walk(&n.Children[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(n); err != nil {
		return nil, err
	}
	if growth > maxGrowth || len(all) > maxStages {
		return nil, fmt.Errorf("%d pre-tokenizers that make a text %.3g times longer: %w", len(all), growth, tensor.ErrUnsupported)
	}
	return all, nil
}

// splitStage is the node split, and the pattern of the node byte level.
type splitStage struct {
	find     dialect.Find
	each     bool // characters between matches are pieces of their own
	invert   bool
	behavior uint8
}

var spanLists = sync.Pool{New: func() any { return new([]regex.Span) }}

func (p *splitStage) split(s string, yield func(string)) error {
	spans := spanLists.Get().(*[]regex.Span)
	matches, err := p.find((*spans)[:0], s)
	defer func() {
		*spans = matches
		spanLists.Put(spans)
	}()
	// The piece from start to end waits for matches to be merged with it.
	start, end := 0, 0
	part := func(from, to int, match bool) {
		switch {
		case from == to:
		case p.each && !match:
			for from < to {
				_, n := utf8.DecodeRuneInString(s[from:to])
				yield(s[from : from+n])
				from += n
			}
		case p.each || p.behavior == mtok.SplitIsolated:
			yield(s[from:to])
		case p.behavior != mtok.SplitMergedWithPrevious:
			if match == p.invert {
				yield(s[from:to])
			}
		case match != p.invert && end > 0:
			end = to
		default:
			yield(s[start:end])
			start, end = from, to
		}
	}
	done := 0
	for _, m := range matches {
		part(done, m.Start, false)
		part(m.Start, m.End, true)
		done = m.End
	}
	part(done, len(s), false)
	yield(s[start:end])
	return err
}

// digitStage is the node digits, one by one: every ASCII digit is a piece.
type digitStage struct{}

func (digitStage) split(s string, yield func(string)) error {
	start := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			continue
		}
		yield(s[start:i])
		yield(s[i : i+1])
		start = i + 1
	}
	yield(s[start:])
	return nil
}

// metaspaceStage replaces spaces, and puts one before every piece that does not begin with one.
type metaspaceStage struct {
	replacement string
	prefix      bool
}

func (p *metaspaceStage) split(s string, yield func(string)) error {
	prefix := p.prefix && s[0] != ' '
	s = strings.ReplaceAll(s, " ", p.replacement)
	if prefix {
		s = p.replacement + s
	}
	yield(s)
	return nil
}

// bertStage is the node BertPreTokenizer: pieces are words and single marks of punctuation.
type bertStage struct{}

func (bertStage) split(s string, yield func(string)) error {
	start := 0
	for i, r := range s {
		space := isSpace(r)
		if !space && !isPunctuation(r) {
			continue
		}
		yield(s[start:i])
		start = i + utf8.RuneLen(r)
		if !space {
			yield(s[i:start])
		}
	}
	yield(s[start:])
	return nil
}

// isPunctuation includes every visible ASCII character that is neither a letter nor a digit.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 33 && r <= 47 || r >= 58 && r <= 64 || r >= 91 && r <= 96 || r >= 123 && r <= 126
	}
	return dialect.Fold(r) == dialect.FoldPunctuation
}

// mapStage spells bytes as stand-ins.
type mapStage struct{}

func (mapStage) split(s string, yield func(string)) error {
	yield(bytelevel.Encode(s))
	return nil
}
