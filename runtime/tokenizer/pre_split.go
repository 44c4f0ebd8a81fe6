package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/chars"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// behavior is the treatment of the matches of a splitStage.
type behavior string

const (
	isolated           behavior = "Isolated"
	removed            behavior = "Removed"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

// check rejects unknown behaviours.
func (b behavior) check(name string) error {
	switch b {
	case isolated, removed, mergedWithPrevious, mergedWithNext, contiguous:
		return nil
	}
	return fmt.Errorf("pre-tokenizer %q: behavior %q: %w", name, string(b), tensor.ErrCorrupt)
}

// span is a part of a text that matched, or that lies between two matches.
type span struct {
	start, end int
	match      bool
}

// splitStage is the pre-tokenizer Split, and Digits too.
type splitStage struct {
	// regex is the pattern in the file's dialect, for the writer of .mtok.
	regex string
	// scan is set for the patterns that leave no gap between matches, find for all others.
	scan     func(t *chars.ClassTable, s string, i int) int
	find     func(s string) []regex.Span
	behavior behavior
	invert   bool
}

func (p *splitStage) split(in piece, yield func(piece)) {
	s := in.text
	// The matches of a scanner leave no gap, so isolating them is keeping them.
	if p.scan != nil && (p.behavior == isolated || p.behavior == removed && p.invert) {
		t := chars.Classes()
		for i := 0; i < len(s); {
			end := p.scan(t, s, i)
			yield(in.part(i, end))
			i = end
		}
		return
	}
	for _, sp := range p.spans(s) {
		if sp.start < sp.end {
			yield(in.part(sp.start, sp.end))
		}
	}
}

// spans are the pieces after the behaviour is applied.
func (p *splitStage) spans(s string) []span {
	var matches []regex.Span
	if p.scan != nil {
		t := chars.Classes()
		for i := 0; i < len(s); {
			end := p.scan(t, s, i)
			matches = append(matches, regex.Span{Start: i, End: end})
			i = end
		}
	} else {
		matches = p.find(s)
	}
	all := make([]span, 0, 2*len(matches)+1)
	done := 0
	for _, m := range matches {
		if done < m.Start {
			all = append(all, span{done, m.Start, p.invert})
		}
		all = append(all, span{m.Start, m.End, !p.invert})
		done = m.End
	}
	if done < len(s) {
		all = append(all, span{done, len(s), p.invert})
	}

	out := all[:0]
	switch p.behavior {
	case removed:
		for _, sp := range all {
			if !sp.match {
				out = append(out, sp)
			}
		}
	case contiguous:
		before := false
		for _, sp := range all {
			if sp.match == before && len(out) > 0 {
				out[len(out)-1].end = sp.end
			} else {
				out = append(out, sp)
			}
			before = sp.match
		}
	case mergedWithPrevious:
		before := false
		for _, sp := range all {
			if sp.match && !before && len(out) > 0 {
				out[len(out)-1].end = sp.end
			} else {
				out = append(out, sp)
			}
			before = sp.match
		}
	case mergedWithNext:
		after := false
		next := len(all) // all[next:] is done
		for i := len(all) - 1; i >= 0; i-- {
			sp := all[i]
			if sp.match && !after && next < len(all) {
				all[next].start = sp.start
			} else {
				next--
				all[next] = sp
			}
			after = sp.match
		}
		return all[next:]
	default:
		return all
	}
	return out
}

func readDigits(raw json.RawMessage, _ int) (preTokenizer, error) {
	var c struct {
		Type       string `json:"type"`
		Individual bool   `json:"individual_digits"`
	}
	err := setup("pre-tokenizer", "Digits", raw, &c)
	return digitsStage(c.Individual), err
}

// digitsStage is the pre-tokenizer Digits: every digit, or every run of digits, is a piece.
func digitsStage(individual bool) *splitStage {
	p := &splitStage{regex: `\p{N}`, behavior: isolated}
	if !individual {
		p.regex = `\p{N}+`
	}
	p.find = func(s string) []regex.Span {
		t := chars.Classes()
		var out []regex.Span
		for i := 0; i < len(s); {
			c, n := t.At(s, i)
			if c&chars.Numeric == 0 {
				i += n
				continue
			}
			end := i + n
			if !individual {
				end = t.Run(s, end, chars.Numeric, 0)
			}
			out = append(out, regex.Span{Start: i, End: end})
			i = end
		}
		return out
	}
	return p
}

// findLiteral finds a text that is not a pattern.
func findLiteral(text string) func(string) []regex.Span {
	return func(s string) []regex.Span {
		var out []regex.Span
		for i := 0; ; {
			k := strings.Index(s[i:], text)
			if k < 0 {
				return out
			}
			out = append(out, regex.Span{Start: i + k, End: i + k + len(text)})
			i += k + len(text)
		}
	}
}

func readSplit(raw json.RawMessage, _ int) (preTokenizer, error) {
	const kind, name = "pre-tokenizer", "Split"
	var c struct {
		Type     string      `json:"type"`
		Pattern  patternFile `json:"pattern"`
		Behavior behavior    `json:"behavior"`
		Invert   bool        `json:"invert"`
	}
	if err := setup(kind, name, raw, &c); err != nil {
		return nil, err
	}
	p := &splitStage{behavior: c.Behavior, invert: c.Invert}
	if err := c.Behavior.check(name); err != nil {
		return nil, err
	}
	switch {
	case c.Pattern.Regex != nil && c.Pattern.String == nil:
		p.regex = *c.Pattern.Regex
		if p.scan = regex.Scanners[p.regex]; p.scan == nil {
			find, err := regex.Compile(p.regex)
			if err != nil {
				return nil, fmt.Errorf("%s %q: %w", kind, name, err)
			}
			p.find = find
		}
	case c.Pattern.String != nil && c.Pattern.Regex == nil && *c.Pattern.String == "":
		// Matches nothing everywhere.
		p.find, _ = regex.Compile("")
	case c.Pattern.String != nil && c.Pattern.Regex == nil:
		p.regex = regex.Quote(*c.Pattern.String)
		p.find = findLiteral(*c.Pattern.String)
	default:
		return nil, fmt.Errorf("%s %q has no pattern: %w", kind, name, tensor.ErrCorrupt)
	}
	return p, nil
}
