package kernel

import "fmt"

// Mul computes output channels rowLo to rowHi-1 for all rows of activations: dst [x.Rows, m.Rows()]
// is written at those columns only, so that goroutines may share a dst. With D the exact sum of
// (activation code + 128) * weight code over block b, and all of it float32 in this order,
//
//	f  = D * weight scale
//	f *= activation scale
//	f += activation zero * sum of the block's weights      DynBlock
//	f += activation scale*-128 * sum of the row's weights  the others, in the last block only
//	f += activation scale * sum of (activation code + 128) * weight of code 0
//	y  = f + y
//
// and at the end y += bias, which a decode without DynBlock replaces by bias + zero * sum of the row's weights. No
// step is fused. The 4-bit kernel of a single row adds the bias after block 0 instead; it runs
// decodes and, when the rows of a call are one more than a multiple of four, the last of them.
//
// x must have been quantized for m's columns and block. Ranges that begin at multiples of 32 are the fastest; one that
// begins in between costs as much as one that begins at the multiple before it.
func (m *Int8Matrix) Mul(dst []float32, x *QuantizedRows, rowLo, rowHi int) {
	if x.Cols != m.cols || x.Block != m.block {
		panic(fmt.Sprintf("internal error: activations of %d columns in blocks of %d for weights of %d in blocks of %d",
			x.Cols, x.Block, m.cols, m.block))
	}
	if x.scheme == schemeBlocks && m.option != DynBlock {
		panic("internal error: activations quantized by blocks for weights that are not to meet such")
	}
	if rowLo < 0 || rowHi > m.rows || len(dst) < x.Rows*m.rows {
		panic(fmt.Sprintf("internal error: outputs %d to %d of %d for %d rows into %d elements", rowLo, rowHi, m.rows, x.Rows, len(dst)))
	}
	if pad := x.layout.pad(m.cols); len(x.codes) != x.Rows*pad || len(x.terms) != 3*x.Rows*m.blocks || (x.layout.group != 0) != (m.panels != nil) ||
		x.scheme == schemeAsym && len(x.Zeros) != x.Rows {
		panic("internal error: activations are not as they were quantized")
	}
	if m.panels != nil {
		m.mulPanels(dst, x, rowLo, rowHi)
		return
	}
	r := rowLo
	if x.Rows >= minPaired {
		var p weightPairs
		p.lo, p.hi = make([]int64, m.cols), make([]int64, m.cols)
		for ; r+4 <= rowHi; r += 4 {
			m.mulPaired(dst, x, r, p)
		}
	}
	for ; r+4 <= rowHi; r += 4 {
		for t := range x.Rows {
			m.mulFour(dst, x, t, r)
		}
	}
	for ; r < rowHi; r++ {
		for t := range x.Rows {
			m.mulOne(dst, x, t, r)
		}
	}
}

// minPaired is the number of rows of activations from which pairing four rows of weights, which
// costs about as much as multiplying them once, pays off.
const minPaired = 4

// weightPairs holds four rows of weight codes, two to a word: code 0 + code 1<<32, code 2 + code 3<<32. A
// product with a code of an activation, and a sum of such products, is two of them in one word.
type weightPairs struct{ lo, hi []int64 }

// splitPair takes the two sums out of a word; the low one has borrowed from the high one if negative.
func splitPair(v int64) (lo, hi int32) {
	lo = int32(v)
	return lo, int32((v - int64(lo)) >> 32)
}

// mulPaired computes output rows r to r+3 for all rows of activations.
func (m *Int8Matrix) mulPaired(dst []float32, x *QuantizedRows, r int, p weightPairs) {
	w0, w1, w2, w3 := m.four(r)
	for i := range p.lo {
		p.lo[i] = int64(w0[i]) + int64(w1[i])<<32
		p.hi[i] = int64(w2[i]) + int64(w3[i])<<32
	}
	t := 0
	for ; t+2 <= x.Rows; t += 2 {
		x0, x1 := x.codes[t*m.cols:][:m.cols], x.codes[(t+1)*m.cols:][:m.cols]
		var y0, y1 [4]float32
		for b := range m.blocks {
			lo, hi := b*m.block, (b+1)*m.block
			s0, s1, s2, s3 := dotPairs(x0[lo:hi], x1[lo:hi], p.lo[lo:hi], p.hi[lo:hi])
			d0, d1 := splitPair(s0)
			d2, d3 := splitPair(s1)
			m.add(&y0, d0, d1, d2, d3, x, t, r, b)
			d0, d1 = splitPair(s2)
			d2, d3 = splitPair(s3)
			m.add(&y1, d0, d1, d2, d3, x, t+1, r, b)
		}
		copy(dst[t*m.rows+r:][:4], y0[:])
		copy(dst[(t+1)*m.rows+r:][:4], y1[:])
	}
	if t < x.Rows {
		m.mulFour(dst, x, t, r)
	}
}

// mulFour computes output rows r to r+3 for row t of activations.
func (m *Int8Matrix) mulFour(dst []float32, x *QuantizedRows, t, r int) {
	w0, w1, w2, w3 := m.four(r)
	codes := x.codes[t*m.cols:][:m.cols]
	var y [4]float32
	for b := range m.blocks {
		lo, hi := b*m.block, (b+1)*m.block
		d0, d1, d2, d3 := dotInt8x4(codes[lo:hi], w0[lo:hi], w1[lo:hi], w2[lo:hi], w3[lo:hi])
		m.add(&y, d0, d1, d2, d3, x, t, r, b)
	}
	copy(dst[t*m.rows+r:][:4], y[:])
}

// mulOne computes output row r for row t of activations.
func (m *Int8Matrix) mulOne(dst []float32, x *QuantizedRows, t, r int) {
	w, codes := m.plain.codes[r*m.cols:][:m.cols], x.codes[t*m.cols:][:m.cols]
	var y float32
	for b := range m.blocks {
		lo, hi := b*m.block, (b+1)*m.block
		y += m.scaled(dotInt8(codes[lo:hi], w[lo:hi]), x.scheme, x.terms[3*(t*m.blocks+b):][:3], r, b)
		if b == m.biasBlock(x, t) {
			y += m.biasOf(x, t, r)
		}
	}
	dst[t*m.rows+r] = y
}

// four returns the codes of rows r to r+3.
func (m *Int8Matrix) four(r int) (w0, w1, w2, w3 []int8) {
	w := m.plain.codes[r*m.cols:][:4*m.cols]
	return w[:m.cols], w[m.cols:][:m.cols], w[2*m.cols:][:m.cols], w[3*m.cols:]
}

// add takes block b of output rows r to r+3 for row t of activations into y.
func (m *Int8Matrix) add(y *[4]float32, d0, d1, d2, d3 int32, x *QuantizedRows, t, r, b int) {
	term, last := x.terms[3*(t*m.blocks+b):][:3], b == m.biasBlock(x, t)
	for i, dot := range [4]int32{d0, d1, d2, d3} {
		y[i] += m.scaled(dot, x.scheme, term, r+i, b)
		if last {
			y[i] += m.biasOf(x, t, r+i)
		}
	}
}

// scaled is what block b adds to output row r. term is the scale, the scaled sum and the shift of the activations.
func (m *Int8Matrix) scaled(dot int32, s scheme, term []float32, r, b int) float32 {
	w := &m.plain.terms[r*m.blocks+b]
	// The conversions keep the compiler from fusing a product into a sum.
	f := float32(float32(float32(dot)*w.scale) * term[0])
	switch {
	case s == schemeBlocks:
		f += float32(term[2] * w.sum)
	case b == m.blocks-1:
		f += float32(term[2] * m.tails[r])
	}
	return f + float32(term[1]*w.offset)
}

// biasBlock is the block after which the bias is added for row t of activations.
func (m *Int8Matrix) biasBlock(x *QuantizedRows, t int) int {
	if m.nibbles && (x.scheme == schemeAsym || t%4 == 0 && t == x.Rows-1) {
		return 0
	}
	return m.blocks - 1
}

// biasOf emulates MNNDynamicUpdateConvBiasScale (CommonOptFunction.cpp).
func (m *Int8Matrix) biasOf(x *QuantizedRows, t, r int) float32 {
	if x.scheme == schemeAsym {
		return m.bias[r] + float32(m.tails[r]*x.Zeros[t])
	}
	return m.bias[r]
}

// dotPairs is the dot product of two rows of activations with four rows of weights.
//
//go:noinline
func dotPairs(x0, x1 []uint8, lo, hi []int64) (s0, s1, s2, s3 int64) {
	x1, lo, hi = x1[:len(x0)], lo[:len(x0)], hi[:len(x0)]
	for i, c := range x0 {
		v0, v1, w0, w1 := int64(c), int64(x1[i]), lo[i], hi[i]
		s0 += v0 * w0
		s1 += v0 * w1
		s2 += v1 * w0
		s3 += v1 * w1
	}
	return s0, s1, s2, s3
}

// dotInt8x4 is the dot product of one row of activations with four rows of weights.
//
//go:noinline
func dotInt8x4(x []uint8, w0, w1, w2, w3 []int8) (d0, d1, d2, d3 int32) {
	w0, w1, w2, w3 = w0[:len(x)], w1[:len(x)], w2[:len(x)], w3[:len(x)]
	for i, c := range x {
		v := int32(c)
		d0 += v * int32(w0[i])
		d1 += v * int32(w1[i])
		d2 += v * int32(w2[i])
		d3 += v * int32(w3[i])
	}
	return d0, d1, d2, d3
}

// dotInt8 is the dot product of two rows.
func dotInt8(x []uint8, w []int8) int32 {
	var d int32
	w = w[:len(x)]
	for i, c := range x {
		d += int32(c) * int32(w[i])
	}
	return d
}
