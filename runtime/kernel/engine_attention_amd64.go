//go:build !purego

package kernel

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
		if use.avx512 {
			quadProduct512(n, d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		} else {
			quadProductFMA(n, d, in, t, p.n, p.count, p.tStride, p.dstStride, p.xStride, scale, f, ahead)
		}
		h += n
	}
}

// rowsTogether is the number of rows, of n, that one call takes.
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
