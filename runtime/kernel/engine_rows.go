package kernel

// tileProduct is a product of rows of x with a matrix that lies in tiles of 16 columns, n rows each:
//
//	sum[h][c] = sum over i of x[h][i] * tile[c/16][i][c%16]        fused, ascending, or in four sums
//
// for h below heads and c below 16*count. The four sums f0 to f3 take every fourth term, the result is (f0+f2)+(f1+f3),
// and the last n%4 terms are added to it.
type tileProduct struct {
	heads, n, count             int
	dstStride, xStride, tStride int // distances of the rows of dst, of the rows of x, and of the tiles
}

// generic writes the sums, times scale, to dst, or with a factor per row adds them to dst*factor.
func (p *tileProduct) generic(dst, x, tiles []float32, scale float32, factors []float32, quad bool) {
	for h := range p.heads {
		row := x[h*p.xStride:][:p.n]
		for t := range p.count {
			sum := tileSum(row, tiles[t*p.tStride:], quad)
			d := dst[h*p.dstStride+t*tileColumns:][:tileColumns]
			for c, s := range sum {
				if factors == nil {
					d[c] = s * scale
				} else {
					d[c] = s + float32(d[c]*factors[h])
				}
			}
		}
	}
}

func tileSum(x, tile []float32, quad bool) (sum [tileColumns]float32) {
	if quad {
		full := len(x) &^ 3
		var f [4][tileColumns]float32
		for i := range full {
			fmaRows(f[i%4][:], x[i:i+1], tile[i*tileColumns:], tileColumns)
		}
		for c := range sum {
			sum[c] = (f[0][c] + f[2][c]) + (f[1][c] + f[3][c])
		}
		x, tile = x[full:], tile[full*tileColumns:]
	}
	fmaRows(sum[:], x, tile, tileColumns)
	return sum
}

// check panics unless the product stays within the slices.
func (p *tileProduct) check(dst, x, tiles, factors []float32) {
	if p.heads <= 0 || p.count <= 0 || p.n < 0 {
		panic("internal error: kernel: empty product")
	}
	_ = dst[(p.heads-1)*p.dstStride+p.count*tileColumns-1]
	if factors != nil {
		_ = factors[p.heads-1]
	}
	if p.n > 0 {
		_ = x[(p.heads-1)*p.xStride+p.n-1]
		_ = tiles[(p.count-1)*p.tStride+p.n*tileColumns-1]
	}
}

// fmaRows adds x[i]*rows[i*stride+c] to dst[c] for all i in ascending order, as fma32 does. len(dst) is a multiple
// of eight.
func fmaRows(dst, x, rows []float32, stride int) {
	for c := 0; c+8 <= len(dst); c += 8 {
		fmaColumns((*[8]float32)(dst[c:]), x, rows[min(c, len(rows)):], len(x), 1, stride)
	}
}

// fmaColumns is fmaRows for n rows of eight columns, whose factors are step apart.
func fmaColumns(d *[8]float32, x, rows []float32, n, step, stride int) {
	d0, d1, d2, d3 := float64(d[0]), float64(d[1]), float64(d[2]), float64(d[3])
	d4, d5, d6, d7 := float64(d[4]), float64(d[5]), float64(d[6]), float64(d[7])
	for i := range n {
		v, w := float64(x[i*step]), (*[8]float32)(rows[i*stride:])
		w0, w1, w2, w3 := float64(w[0]), float64(w[1]), float64(w[2]), float64(w[3])
		w4, w5, w6, w7 := float64(w[4]), float64(w[5]), float64(w[6]), float64(w[7])
		s0, s1, s2, s3 := float64(v*w0)+d0, float64(v*w1)+d1, float64(v*w2)+d2, float64(v*w3)+d3
		s4, s5, s6, s7 := float64(v*w4)+d4, float64(v*w5)+d5, float64(v*w6)+d6, float64(v*w7)+d7
		if twice(s0) || twice(s1) || twice(s2) || twice(s3) || twice(s4) || twice(s5) || twice(s6) || twice(s7) {
			s0, s1, s2, s3 = fma32(v, w0, d0), fma32(v, w1, d1), fma32(v, w2, d2), fma32(v, w3, d3)
			s4, s5, s6, s7 = fma32(v, w4, d4), fma32(v, w5, d5), fma32(v, w6, d6), fma32(v, w7, d7)
		}
		d0, d1, d2, d3 = float64(float32(s0)), float64(float32(s1)), float64(float32(s2)), float64(float32(s3))
		d4, d5, d6, d7 = float64(float32(s4)), float64(float32(s5)), float64(float32(s6)), float64(float32(s7))
	}
	*d = [8]float32{float32(d0), float32(d1), float32(d2), float32(d3), float32(d4), float32(d5), float32(d6), float32(d7)}
}
