//go:build !purego

package kernel

// attendLanes takes a query per lane, or returns false where there are none.
func (a *EngineFullAttention) attendLanes(s *fullScratch, out, q []float32, head, from, end int) bool {
	lanes := tileLanes()
	if lanes == 0 {
		return false
	}
	keys, values := a.tiles(head)
	l, groups, columns := &s.lanes, (a.keys+7)/8, (a.valueDim+7)/8
	l.q, l.mixed = resized(l.q, a.dim*lanes), resized(l.mixed, 8*columns*lanes)
	s.scores = resized(s.scores, 8*groups*lanes)
	for ; from < end; from += lanes {
		n := min(lanes, end-from)
		for i := range lanes { // lanes that are not used repeat the last query
			l.offsets[i] = min(from+i, end-1) * a.heads * a.dim
		}
		for i := 0; i < lanes; i += 8 {
			gatherColumns(l.q[i:], q, (*[8]int)(l.offsets[i:]), lanes, a.dim)
		}
		l.product(s.scores, l.q, keys, a.dim, groups, a.dim*tileColumns, lanes, 1, nil)
		softmaxOfLanes(s.scores, a.keys, lanes)
		l.product(l.mixed, s.scores, values, a.keys, columns, a.keys*tileColumns, lanes, 1, nil)
		for i := range n {
			l.offsets[i] = (from + i) * a.heads * a.valueDim
		}
		l.scatter(out, a.valueDim, n, lanes)
	}
	return true
}

// softmaxOfLanes turns scores [n][lanes] into probabilities, each lane as EngineSoftmaxRows does.
func softmaxOfLanes(scores []float32, n, lanes int) {
	_ = scores[n*lanes-1]
	if lanes == maxLanes {
		laneSoftmax512(&scores[0], n)
	} else {
		laneSoftmaxFMA(&scores[0], n)
	}
}

// ascending writes the sums of generic, which are ascending, to dst.
func (p *tileProduct) ascending(dst, x, tiles []float32) { p.generic(dst, x, tiles, 1, nil, false) }
