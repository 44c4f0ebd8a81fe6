package tokenizer

// engineMatcher runs a pattern over a folded text, greedily and with backtracking.
type engineMatcher struct {
	text []byte
	// steps are left before every further attempt fails. Patterns in use need a few steps a character; the
	// bound is there for files that were made to keep a reader busy.
	steps int
}

func (m *engineMatcher) any(pos int, branches [][]regexNode) int {
	for _, b := range branches {
		if end := m.sequence(pos, b); end >= 0 {
			return end
		}
	}
	return -1
}

// sequence returns the end of a match of nodes at pos, or -1.
func (m *engineMatcher) sequence(pos int, nodes []regexNode) int {
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

// spans lists the parts of s, matches and what lies between them.
func (re *engineRegex) spans(s string) []span {
	folded, at := foldText(s)
	m := &engineMatcher{text: folded, steps: 1<<20 + 256*len(folded)}
	var out []span
	done := 0
	for pos := 0; pos < len(folded); {
		end := m.any(pos, re.branches)
		if end <= pos {
			pos++
			continue
		}
		if done < pos {
			out = append(out, span{at[done], at[pos], false})
		}
		out = append(out, span{at[pos], at[end], true})
		pos, done = end, end
	}
	if done < len(folded) {
		out = append(out, span{at[done], len(s), false})
	}
	return out
}
