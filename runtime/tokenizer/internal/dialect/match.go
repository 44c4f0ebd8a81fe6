package dialect

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
	"github.com/llmexport/llmexport/runtime/tokenizer/internal/regex"
)

// matcher runs a pattern over a folded text, greedily and with backtracking.
type matcher struct {
	text []byte
	// steps are left before every further attempt fails. Published patterns take a few steps a character; the bound is
	// for hostile files.
	steps int
}

func (m *matcher) any(pos int, branches [][]node) int {
	for _, b := range branches {
		if end := m.sequence(pos, b); end >= 0 {
			return end
		}
	}
	return -1
}

// sequence returns the end of a match of nodes at pos, or -1.
func (m *matcher) sequence(pos int, nodes []node) int {
	if m.steps--; m.steps < 0 {
		return -1
	}
	if len(nodes) == 0 {
		return pos
	}
	n := &nodes[0]
	switch n.kind {
	case nodeNot:
		if m.any(pos, n.branches) >= 0 {
			return -1
		}
		return m.sequence(pos, nodes[1:])
	case nodeSet:
		most := len(m.text) - pos
		if n.max >= 0 {
			most = min(most, n.max)
		}
		count := 0
		for count < most && n.set.has(m.text[pos+count]) {
			count++
		}
		m.steps -= count / 8
		for ; count >= n.min; count-- {
			if end := m.sequence(pos+count, nodes[1:]); end >= 0 {
				return end
			}
		}
		return -1
	}
	most := n.max
	if most < 0 {
		most = 10000 // the engine's own bound
	}
	ends := []int{pos}
	for len(ends) <= most {
		end := m.any(ends[len(ends)-1], n.branches)
		if end <= ends[len(ends)-1] {
			break
		}
		ends = append(ends, end)
	}
	for count := len(ends) - 1; count >= n.min; count-- {
		if end := m.sequence(ends[count], nodes[1:]); end >= 0 {
			return end
		}
	}
	return -1
}

// find appends the matches in s to dst. It returns an error if the engine would search for minutes; the rest has no matches
// then.
func (re *foldedRegex) find(dst []regex.Span, s string) ([]regex.Span, error) {
	f := foldedTexts.Get().(*foldedText)
	defer foldedTexts.Put(f)
	f.fold(s)
	m := &matcher{text: f.chars, steps: 1<<20 + 256*len(f.chars)}
	for pos := 0; pos < len(f.chars); {
		end := -1
		for i, b := range re.branches {
			if !re.first[i].has(f.chars[pos]) {
				continue
			}
			if end = m.sequence(pos, b); end >= 0 {
				break
			}
		}
		if end <= pos {
			pos++
			continue
		}
		dst = append(dst, regex.Span{Start: f.offset(pos), End: f.offset(end)})
		pos = end
	}
	if m.steps < 0 {
		return dst, fmt.Errorf("text of %d characters, %.40q...: the pattern backtracks in it for too long: %w", len(f.chars), s, tensor.ErrUnsupported)
	}
	return dst, nil
}
