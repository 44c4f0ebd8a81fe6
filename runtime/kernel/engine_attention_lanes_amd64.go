//go:build !purego

package kernel

import "math"

// maxLanes is the number of queries that are computed at once, with AVX-512; lanesFMA is that of AVX2.
const (
	maxLanes = 32
	lanesFMA = 24
)

// attentionLanes is the scratch of code that takes a query head of a token per lane. Columns lie one lane count apart.
type attentionLanes struct {
	q, mixed         []float32 // [dim], [dim padded to 8]
	scores           [engineBlock * maxLanes]float32
	top, sum, factor [maxLanes]float32
	seen             [maxLanes]int32 // keys from the start of the block on
	offsets          [maxLanes]int   // of the query in q and out

	maskRows [maxLanes]int // where the mask of the query begins
	mask     []float32     // of the keys of a block, like scores

	// Of queries that the engine computes alone: weights or scores, and the sums of a block, [lanes, padded dim].
	row   [engineBlock]float32
	alone []float32
}

// attendLanes computes a job and returns true, or leaves it to attendRow: every decode, and all of it without AVX2.
func (a *EngineAttention) attendLanes(j *attentionJob) bool {
	if !use.avx2 || j.tokens == 1 {
		return false
	}
	lanes, heads := lanesFMA, j.hi-j.lo
	if use.avx512 {
		lanes = maxLanes
	}
	dim := j.cache.dim
	l := &a.lanes
	l.q, l.mixed = resized(l.q, dim*lanes), resized(l.mixed, (dim+7)&^7*lanes)
	for row, rows := 0, (j.end-j.from)*heads; row < rows; row += lanes {
		l.attend(j, row, min(lanes, rows-row), lanes)
	}
	return true
}

// attend computes n of the job's (end-from)*heads queries.
func (l *attentionLanes) attend(j *attentionJob, row, n, lanes int) {
	dim, heads := j.cache.dim, j.hi-j.lo
	query := func(i int) (t, head int) { return j.from + (row+i)/heads, j.lo + (row+i)%heads }
	for i := range lanes {
		t, head := query(min(i, n-1)) // lanes that are not used repeat the last query
		l.offsets[i] = (t*j.heads + head) * dim
		l.seen[i] = int32(j.sees(t))
		l.top[i], l.sum[i] = -math.MaxFloat32, 0
		if j.sinks != nil {
			l.top[i], l.sum[i] = j.sinks[head], 1
		}
		l.maskRows[i] = t * j.maskWidth
	}
	for i := 0; i < lanes; i += 8 {
		gatherColumns(l.q[i:], j.q, (*[8]int)(l.offsets[i:]), lanes, dim)
	}
	clear(l.mixed)
	// The last lanes are the heads of one query, which may be one that the engine computes alone.
	last, head := query(n - 1)
	first := max(0, n-1-(head-j.lo))
	for start, end := 0, j.sees(last); start < end; start += engineBlock {
		size := min(engineBlock, end-start)
		keys, values := j.cache.block(j.kvHead, start/engineBlock)
		l.product(l.scores[:], l.q, keys, dim, (size+7)/8, dim*tileColumns, lanes, j.scale, nil)
		if j.singleDot(last) {
			for i := first; i < n; i++ {
				l.dotAlone(j, keys, i, size, lanes)
			}
		}
		if j.mask != nil {
			l.addMask(j, start, size, lanes)
		}
		l.weigh(size, lanes)
		alone := j.singleMix(last, start)
		if alone {
			for i := first; i < n; i++ {
				l.mixAlone(j, values, i, i-first, size, lanes)
			}
		}
		l.product(l.mixed, l.scores[:], values, size, (dim+7)/8, engineBlock*tileColumns, lanes, 0, l.factor[:])
		if alone {
			for i := first; i < n; i++ {
				for d, x := range l.alone[(i-first)*j.cache.valueTiles()*tileColumns:][:dim] {
					l.mixed[d*lanes+i] = x
				}
			}
		}
		for i := range l.seen {
			l.seen[i] -= engineBlock
		}
	}
	for i := range lanes {
		l.factor[i] = 1 / l.sum[i]
	}
	l.product(l.mixed, nil, nil, 0, (dim+7)/8, 0, lanes, 0, l.factor[:])
	l.scatter(j.out, dim, n, lanes)
}

// addMask adds the mask of size keys from start on to the scores.
func (l *attentionLanes) addMask(j *attentionJob, start, size, lanes int) {
	l.mask = resized(l.mask, size*lanes)
	var rows [8]int
	for i := 0; i < lanes; i += 8 {
		copy(rows[:], l.maskRows[i:])
		gatherColumns(l.mask[i:], j.mask[start:], &rows, lanes, size)
	}
	add(l.scores[:size*lanes], l.scores[:size*lanes], l.mask)
}

// dotAlone replaces the scores of lane i.
func (l *attentionLanes) dotAlone(j *attentionJob, keys []float32, i, size, lanes int) {
	p := j.dots(1, size)
	p.quad(l.row[:], j.q[l.offsets[i]:][:j.cache.dim], keys, j.scale, nil, nil)
	for k, s := range l.row[:size] {
		l.scores[k*lanes+i] = s
	}
}

// mixAlone writes the sums of lane i over the block to row r of alone.
func (l *attentionLanes) mixAlone(j *attentionJob, values []float32, i, r, size, lanes int) {
	for k := range size {
		l.row[k] = l.scores[k*lanes+i]
	}
	p := j.mixes(1, size)
	l.alone = resized(l.alone, lanes*p.dstStride)
	mixed := l.alone[r*p.dstStride:][:p.dstStride]
	for d := range j.cache.dim {
		mixed[d] = l.mixed[d*lanes+i]
	}
	p.quad(mixed, l.row[:], values, 0, l.factor[i:], nil)
}

// product is tileProduct with ascending sums and lanes for rows: dst is [8*groups][lanes], x [n][lanes].
func (l *attentionLanes) product(dst, x, tiles []float32, n, groups, stride, lanes int, scale float32, factors []float32) {
	_ = dst[8*groups*lanes-1]
	if n > 0 {
		_ = x[n*lanes-1]
		_ = tiles[(groups-1)/2*stride+n*tileColumns-1]
	}
	if factors != nil {
		_ = factors[lanes-1]
	}
	if lanes == maxLanes {
		laneProduct512(&dst[0], pointer(x), pointer(tiles), n, groups, stride, scale, pointer(factors))
	} else {
		laneProductFMA(&dst[0], pointer(x), pointer(tiles), n, groups, stride, scale, pointer(factors))
	}
}

// weigh turns size scores per lane into weights.
func (l *attentionLanes) weigh(size, lanes int) {
	_ = l.scores[size*lanes-1]
	if lanes == maxLanes {
		laneWeights512(&l.scores[0], size, &l.top[0], &l.sum[0], &l.factor[0], &l.seen[0])
	} else {
		laneWeightsFMA(&l.scores[0], size, &l.top[0], &l.sum[0], &l.factor[0], &l.seen[0])
	}
}

// scatter writes the first n lanes to their queries.
func (l *attentionLanes) scatter(out []float32, dim, n, lanes int) {
	i, vector := 0, dim&^3
	for ; i+8 <= n && vector > 0; i += 8 {
		offsets := (*[8]int)(l.offsets[i:])
		for _, at := range offsets {
			_ = out[at : at+dim]
		}
		_ = l.mixed[(dim-1)*lanes+i+7]
		scatterColumnsAVX2(&out[0], &l.mixed[i], offsets, lanes, vector/4)
		for r, at := range offsets {
			for d := vector; d < dim; d++ {
				out[at+d] = l.mixed[d*lanes+i+r]
			}
		}
	}
	for ; i < n; i++ {
		for d := range out[l.offsets[i]:][:dim] {
			out[l.offsets[i]+d] = l.mixed[d*lanes+i]
		}
	}
}
