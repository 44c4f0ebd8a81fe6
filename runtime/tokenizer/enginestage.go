package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// substitute replaces single code points by their texts in a sorted table, and by a space the control
// characters that the engine has a list of.
func substitute(table []substitution, s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if isControl(r) {
			b.WriteByte(' ')
		} else if k, ok := slices.BinarySearchFunc(table, r, func(e substitution, r rune) int { return int(e.Char - r) }); ok {
			b.WriteString(table[k].Text)
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

func isControl(r rune) bool {
	switch r {
	case 0, '\n', '\r', '\t':
		return false
	}
	return r < 0x20 || r >= 0x7F && r <= 0x9F || r >= 0x200B && r <= 0x200F || r == 0xFEFF ||
		r >= 0x202A && r <= 0x202E || r >= 0x2060 && r <= 0x2069 || r >= 0xFFF0 && r <= 0xFFF8
}

// engineStages unfolds a pre-tokenizer node. No stage is a text that is one piece.
func engineStages(n preNode) ([]stage, error) {
	switch n.Tag {
	case preByteLevel:
		if !n.Flag {
			return []stage{mapStage{}}, nil
		}
		gpt2, _, err := parseEngineRegex(patternGPT2)
		return []stage{&engineSplit{re: gpt2, each: true}, mapStage{}}, err
	case preDigits:
		if n.Flag {
			return []stage{digitStage{}}, nil
		}
	case preSplit:
		re, _, err := parseEngineRegex(n.Regex)
		if err != nil {
			return nil, err
		}
		return []stage{&engineSplit{re: re, invert: n.Flag, behavior: n.Behavior}}, nil
	case preSequence:
		var all []stage
		for _, c := range n.Children {
			stages, err := engineStages(c)
			if err != nil {
				return nil, err
			}
			all = append(all, stages...)
		}
		return all, nil
	}
	return nil, nil
}

// engineSplit is the node split, and the pattern of the node byte level.
type engineSplit struct {
	re       *engineRegex
	each     bool // characters between matches are pieces of their own
	invert   bool
	behavior uint8
}

func (p *engineSplit) split(s string, yield func(string)) {
	if p.each || p.behavior == splitIsolated {
		for _, sp := range p.re.spans(s) {
			part := s[sp.start:sp.end]
			for p.each && !sp.match && part != "" {
				_, n := utf8.DecodeRuneInString(part)
				yield(part[:n])
				part = part[n:]
			}
			if part != "" {
				yield(part)
			}
		}
		return
	}
	pending := span{}
	for i, sp := range p.re.spans(s) {
		match := sp.match != p.invert
		switch {
		case p.behavior != splitMergedWithPrevious:
			if !match {
				yield(s[sp.start:sp.end])
			}
		case match && i > 0:
			pending.end = sp.end
		default:
			if i > 0 {
				yield(s[pending.start:pending.end])
			}
			pending = sp
		}
	}
	if pending.end > 0 {
		yield(s[pending.start:pending.end])
	}
}

// digitStage is the node digits: every ASCII digit is a piece.
type digitStage struct{}

func (digitStage) split(s string, yield func(string)) {
	start := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			continue
		}
		if start < i {
			yield(s[start:i])
		}
		yield(s[i : i+1])
		start = i + 1
	}
	if start < len(s) {
		yield(s[start:])
	}
}

// mapStage spells bytes as stand-ins.
type mapStage struct{}

func (mapStage) split(s string, yield func(string)) { yield(toStandIns(s)) }
