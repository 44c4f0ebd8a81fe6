package tokenizer

import (
	"strings"
)

// stage is one step of the pre-tokenizer. It calls yield with the pieces of s, in order; s is not empty, and
// neither are the pieces. What the last stage yields is merged on its own.
type stage interface {
	split(s string, yield func(string))
}

// runStages sends s through the stages.
func runStages(stages []stage, s string, yield func(string)) {
	if len(stages) == 0 {
		yield(s)
		return
	}
	if len(stages) == 1 {
		stages[0].split(s, yield)
		return
	}
	stages[0].split(s, func(piece string) { runStages(stages[1:], piece, yield) })
}

// behavior says what becomes of the matches of a splitStage.
type behavior string

const (
	isolated           behavior = "Isolated"
	removed            behavior = "Removed"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

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
	scan     func(t *classTable, s string, i int) int
	find     func(s string) []span
	behavior behavior
	invert   bool
}

func (p *splitStage) split(s string, yield func(string)) {
	if p.scan != nil && p.behavior == isolated {
		t := classes()
		for i := 0; i < len(s); {
			end := p.scan(t, s, i)
			yield(s[i:end])
			i = end
		}
		return
	}
	for _, sp := range p.spans(s) {
		if sp.start < sp.end {
			yield(s[sp.start:sp.end])
		}
	}
}

// spans are the pieces after the behaviour is applied.
func (p *splitStage) spans(s string) []span {
	var matches []span
	if p.scan != nil {
		t := classes()
		for i := 0; i < len(s); {
			end := p.scan(t, s, i)
			matches = append(matches, span{i, end, true})
			i = end
		}
	} else {
		matches = p.find(s)
	}
	all := make([]span, 0, 2*len(matches)+1)
	done := 0
	for _, m := range matches {
		if done < m.start {
			all = append(all, span{done, m.start, p.invert})
		}
		all = append(all, span{m.start, m.end, !p.invert})
		done = m.end
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

// digitsStage is the pre-tokenizer Digits: every digit, or every run of digits, is a piece.
func digitsStage(individual bool) *splitStage {
	p := &splitStage{regex: `\p{N}`, behavior: isolated}
	if !individual {
		p.regex = `\p{N}+`
	}
	p.find = func(s string) []span {
		t := classes()
		var out []span
		for i := 0; i < len(s); {
			c, n := t.at(s, i)
			if c&numeric == 0 {
				i += n
				continue
			}
			end := i + n
			if !individual {
				end = t.run(s, end, numeric, 0)
			}
			out = append(out, span{i, end, true})
			i = end
		}
		return out
	}
	return p
}

// findLiteral finds a text that is not a pattern.
func findLiteral(text string) func(string) []span {
	return func(s string) []span {
		var out []span
		for i := 0; ; {
			k := strings.Index(s[i:], text)
			if k < 0 {
				return out
			}
			out = append(out, span{i + k, i + k + len(text), true})
			i += k + len(text)
		}
	}
}

// byteLevelStage is the pre-tokenizer ByteLevel, always the last one. That the model works on bytes is its
// effect too, but needs no work here.
type byteLevelStage struct {
	prefixSpace, useRegex bool
}

func (p *byteLevelStage) split(s string, yield func(string)) {
	if p.prefixSpace && s[0] != ' ' {
		s = " " + s
	}
	if !p.useRegex {
		yield(s)
		return
	}
	t := classes()
	for i := 0; i < len(s); {
		end := scanGPT2(t, s, i)
		yield(s[i:end])
		i = end
	}
}
