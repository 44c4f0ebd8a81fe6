//go:build !purego

package kernel

// laneProduct512 is tileProduct with the ascending sums for 8*groups columns, transposed: dst is [8*groups][32],
// x [n][32], and the tiles lie stride apart. Without factors, of each lane, sums are scaled.
//
//go:noescape
func laneProduct512(dst *float32, x *float32, tiles *float32, n int, groups int, stride int, scale float32, factors *float32)

// laneProductFMA is laneProduct512 for 24 lanes.
//
//go:noescape
func laneProductFMA(dst *float32, x *float32, tiles *float32, n int, groups int, stride int, scale float32, factors *float32)

// laneWeights512 is rowWeights.weigh for scores [n][32], n > 0, of which a lane sees the first seen; the others become 0.
//
//go:noescape
func laneWeights512(scores *float32, n int, top *float32, sum *float32, factors *float32, seen *int32)

// laneWeightsFMA is laneWeights512 for 24 lanes.
//
//go:noescape
func laneWeightsFMA(scores *float32, n int, top *float32, sum *float32, factors *float32, seen *int32)

// quadProduct1FMA and the next ones are tileProduct.quad for one, two or three rows of x.
//
//go:noescape
func quadProduct1FMA(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)

//go:noescape
func quadProduct2FMA(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)

//go:noescape
func quadProduct3FMA(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)

//go:noescape
func quadProduct1512(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)

//go:noescape
func quadProduct2512(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)

//go:noescape
func quadProduct3512(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)

// rowWeightsFMA is rowWeights.weigh for one row, without the sum; it reads and writes the first n scores only.
//
//go:noescape
func rowWeightsFMA(scores *float32, n int, top *float32, factor *float32)

// rowSumsFMA is the sum of rowWeights.weigh, for one, two or three rows.
//
//go:noescape
func rowSumsFMA(weights *float32, n int, heads int, sum *float32, factors *float32)

// gatherColumnsAVX2 moves 4*groups elements of eight rows, which begin at the offsets, to columns: element d of row r
// goes to dst[d*stride+r].
//
//go:noescape
func gatherColumnsAVX2(dst *float32, src *float32, offsets *[8]int, stride int, groups int)

// scatterColumnsAVX2 is the reverse: element d of row r comes from src[d*stride+r].
//
//go:noescape
func scatterColumnsAVX2(dst *float32, src *float32, offsets *[8]int, stride int, groups int)

// pointer is that of the first element, or nil.
func pointer(x []float32) *float32 {
	if len(x) == 0 {
		return nil
	}
	return &x[0]
}

// quad is generic with the four sums. The memory of next, if any, is read soon after.
func (p *tileProduct) quad(dst, x, tiles []float32, scale float32, factors, next []float32) {
	if !use.avx2 {
		p.generic(dst, x, tiles, scale, factors, true)
		return
	}
	p.check(dst, x, tiles, factors)
	if len(next) < p.count*p.n*tileColumns {
		next = tiles
	}
	t, ahead := pointer(tiles), pointer(next)
	for h := 0; h < p.heads; {
		n := rowsTogether(p.heads - h)
		d, in, f := &dst[h*p.dstStride], pointer(x), pointer(factors)
		if in != nil {
			in = &x[h*p.xStride]
		}
		if f != nil {
			f = &factors[h]
		}
		switch {
		case n == 1 && use.avx512:
			quadProduct1512(d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		case n == 2 && use.avx512:
			quadProduct2512(d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		case use.avx512:
			quadProduct3512(d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		case n == 1:
			quadProduct1FMA(d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		case n == 2:
			quadProduct2FMA(d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		default:
			quadProduct3FMA(d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		}
		h += n
	}
}

// rowsTogether is how many of n rows one call takes.
func rowsTogether(n int) int {
	if n == 4 {
		return 2
	}
	return min(n, 3)
}

// weigh replaces the first n of each row's 64 scores by their weights.
func (w *rowWeights) weigh(s []float32, n int) {
	if !use.avx2 {
		w.weighGeneric(s, n)
		return
	}
	rows := len(w.top)
	_ = s[(rows-1)*engineBlock+n-1]
	for r := range rows {
		rowWeightsFMA(&s[r*engineBlock], n, &w.top[r], &w.factor[r])
	}
	for r := 0; r < rows; {
		count := rowsTogether(rows - r)
		rowSumsFMA(&s[r*engineBlock], n, count, &w.sum[r], &w.factor[r])
		r += count
	}
}

// gatherColumns writes element d of row r, which starts at src[rows[r]], to dst[d*stride+r], for eight rows of dim
// elements.
func gatherColumns(dst, src []float32, rows *[8]int, stride, dim int) {
	groups := dim / 4
	if !use.avx2 || groups == 0 {
		gatherColumnsGeneric(dst, src, rows, stride, dim)
		return
	}
	_ = dst[(dim-1)*stride+7]
	for _, at := range rows {
		_ = src[at : at+dim]
	}
	gatherColumnsAVX2(&dst[0], &src[0], rows, stride, groups)
	for d := 4 * groups; d < dim; d++ {
		for r, at := range rows {
			dst[d*stride+r] = src[at+d]
		}
	}
}
