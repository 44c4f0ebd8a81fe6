//go:build !purego

package kernel

// attentionRows bounds the rows, one for each query and head, that are computed together.
const attentionRows = 32

// attentionLanes is the scratch for many queries.
type attentionLanes struct {
	queries []float32 // [rows, dim]
}

// attendLanes computes the job for many queries at once, so that a block of keys and values stays in the cache.
func (a *EngineAttention) attendLanes(j *attentionJob) bool {
	if !use.neon {
		return false
	}
	step := max(1, attentionRows/(j.hi-j.lo))
	for from := j.from; from < j.end; from += step {
		part := *j
		part.from, part.end = from, min(from+step, j.end)
		a.attendQueries(&part)
	}
	return true
}

func (a *EngineAttention) attendQueries(j *attentionJob) {
	heads, dim, width := j.hi-j.lo, j.cache.dim, j.cache.valueTiles()*tileColumns
	rows := (j.end - j.from) * heads
	a.lanes.queries = resized(a.lanes.queries, rows*dim)
	a.scores, a.mixed = resized(a.scores, rows*engineBlock), resized(a.mixed, rows*width)
	clear(a.mixed)
	w := &a.weights
	w.reset(rows)
	w.sink(j.sinks, j.lo, heads)
	for t := j.from; t < j.end; t++ {
		copy(a.lanes.queries[(t-j.from)*heads*dim:][:heads*dim], j.q[(t*j.heads+j.lo)*dim:])
	}
	for start, end := 0, j.sees(j.end-1); start < end; start += engineBlock {
		keys, values := j.cache.block(j.kvHead, start/engineBlock)
		t := j.from
		if j.mask == nil {
			t = max(t, start-j.past)
		}
		for t < j.end {
			// Queries that attend to the same keys of the block are computed together; the last one may be alone.
			n, next := min(engineBlock, j.sees(t)-start), t+1
			single := j.singleDot(t) || j.singleMix(t, start)
			for (n == engineBlock || j.mask != nil) && next < j.end && !single && !j.singleDot(next) && !j.singleMix(next, start) {
				next++
			}
			first, count := (t-j.from)*heads, (next-t)*heads
			scores, mixed := a.scores[first*engineBlock:], a.mixed[first*width:]
			dots, mixes := j.dots(count, n), j.mixes(count, n)
			dots.rows(scores, a.lanes.queries[first*dim:], keys, j.scale, nil, j.singleDot(t))
			for r := range count {
				if j.mask != nil {
					s := scores[r*engineBlock:][:n]
					add(s, s, j.maskRow(t+r/heads, start, n))
				}
				w.weighRow(scores[r*engineBlock:][:n], first+r)
			}
			mixes.rows(mixed, scores, values, 0, w.factor[first:], j.singleMix(t, start))
			t = next
		}
	}
	for t := j.from; t < j.end; t++ {
		for h := range heads {
			r := (t-j.from)*heads + h
			inv, out := 1/w.sum[r], j.out[(t*j.heads+j.lo+h)*dim:][:dim]
			for d, x := range a.mixed[r*width:][:dim] {
				out[d] = float32(x*inv) + 0
			}
		}
	}
}

// quad is generic with the four sums.
func (p *tileProduct) quad(dst, x, tiles []float32, scale float32, factors, _ []float32) {
	if !use.neon {
		p.generic(dst, x, tiles, scale, factors, true)
		return
	}
	p.rows(dst, x, tiles, scale, factors, true)
}

// ascending writes the sums of generic, which are ascending, to dst.
func (p *tileProduct) ascending(dst, x, tiles []float32) {
	if !use.neon {
		p.generic(dst, x, tiles, 1, nil, false)
		return
	}
	p.rows(dst, x, tiles, 1, nil, false)
}

// rows is generic in assembly.
func (p *tileProduct) rows(dst, x, tiles []float32, scale float32, factors []float32, quad bool) {
	p.check(dst, x, tiles, factors)
	for h := 0; h < p.heads; {
		var row, factor *float32
		if p.n > 0 {
			row = &x[h*p.xStride]
		}
		if factors != nil {
			factor = &factors[h]
		}
		n := 1 // rows at once
		switch left := p.heads - h; {
		case quad:
		case left >= 4:
			n = 4
		case left >= 2:
			n = 2
		}
		for t := range p.count {
			var tile *float32
			if p.n > 0 {
				tile = &tiles[t*p.tStride]
			}
			d := &dst[h*p.dstStride+t*tileColumns]
			if quad {
				tileQuadNEON(d, row, tile, factor, p.n, p.dstStride, p.xStride, scale)
			} else {
				tileSumNEON(n, d, row, tile, factor, p.n, p.dstStride, p.xStride, scale)
			}
		}
		h += n
	}
}

// weigh replaces the first n of each row's 64 scores by their weights.
func (w *rowWeights) weigh(scores []float32, n int) {
	if !use.neon {
		w.weighGeneric(scores, n)
		return
	}
	for r := range w.top {
		w.weighRow(scores[r*engineBlock:][:n], r)
	}
}

func (w *rowWeights) weighRow(s []float32, row int) {
	old, top := w.top[row], w.top[row]
	for _, x := range s {
		top = max(top, x)
	}
	full, sum := len(s)&^7, float32(0)
	for j := range s {
		s[j] -= top
	}
	engineExps(s[:full], s[:full])
	for j, x := range s[full:] {
		s[full+j] = expf(x)
	}
	for _, p := range s {
		sum += p
	}
	w.factor[row] = expf(old - top)
	w.sum[row] = float32(w.sum[row]*w.factor[row]) + sum
	w.top[row] = top
}

func gatherColumns(dst, src []float32, rows *[8]int, stride, dim int) {
	gatherColumnsGeneric(dst, src, rows, stride, dim)
}
