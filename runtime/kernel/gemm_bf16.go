package kernel

import "math"

// MatMulBF16 computes dst = a · bᵀ of bf16 matrices in float32: a is [m, k], b is [n, k], dst is [m, n] of float32.
// Strides and panics are those of [MatMulT].
//
// Its results depend on the machine and must never reach a file. Without AVX-512 BF16 they are those of MatMulT on the
// widened values. With it, VDPBF16PS adds products in pairs and rounds after each, and takes subnormal operands and sums
// for 0. Either way an element whose operands are not subnormal is off the exact sum by at most
// (min(k, 512) + k/256 + 2) * 2^-24 times the sum of the magnitudes of its products, plus k * 2^-125 for what underflows.
func MatMulBF16(dst []float32, a, b []uint16, m, n, k, ldd, lda, ldb int) {
	checkMatrix("MatMulBF16", "dst", len(dst), m, n, ldd)
	checkMatrix("MatMulBF16", "a", len(a), m, k, lda)
	checkMatrix("MatMulBF16", "b", len(b), n, k, ldb)
	g := gemm{a: halves(a, k, lda, use.bf16), b: halves(b, k, ldb, use.bf16), k: k, ldd: ldd}
	if use.bf16 {
		g.k, g.pairs = (k+1)/2, true
	}
	g.run(dst, 0, m, 0, n)
}

// halves is a factor of bf16, in pairs or to be widened.
func halves(h []uint16, k, ld int, pairs bool) gemmSide {
	if pairs {
		return gemmSide{layout: gemmPairs, h: h, ld: ld, k: k}
	}
	return gemmSide{layout: gemmHalves, h: h, ld: ld}
}

// PackedBF16 is [Packed] for a matrix of bf16. Where the CPU multiplies bf16 it takes half the memory, elsewhere it holds
// the widened values.
type PackedBF16 struct {
	panels     []float32 // of words
	rows, cols int
	pairs      bool
}

// Rows is the number of rows of the matrix, the columns of a product.
func (p *PackedBF16) Rows() int { return p.rows }

// Cols is the number of columns of the matrix, the positions of a sum.
func (p *PackedBF16) Cols() int { return p.cols }

// Bytes is the memory that p holds.
func (p *PackedBF16) Bytes() int { return 4 * cap(p.panels) }

// words is the number of words of a row.
func (p *PackedBF16) words() int {
	if p.pairs {
		return (p.cols + 1) / 2
	}
	return p.cols
}

// Resize makes room for a matrix [n, k], in the memory that is there if it suffices. The content is undefined until
// every row has been packed.
func (p *PackedBF16) Resize(n, k int) {
	p.rows, p.cols, p.pairs = n, k, use.bf16
	p.panels = resizePanels(p.panels, n, p.words())
}

// Pack makes p the matrix b [n, k], whose row j begins at b[j*ldb].
func (p *PackedBF16) Pack(b []uint16, n, k, ldb int) {
	checkMatrix("PackedBF16.Pack", "b", len(b), n, k, ldb)
	p.Resize(n, k)
	p.PackRows(b, 0, n, ldb)
}

// PackRows fills rows lo to lo+rows-1 with those of b, as [Packed.PackRows] does.
func (p *PackedBF16) PackRows(b []uint16, lo, rows, ldb int) {
	checkMatrix("PackedBF16.PackRows", "b", len(b), rows, p.cols, ldb)
	side := halves(b, p.cols, ldb, p.pairs)
	packPanels(p.panels, &side, lo, rows, p.rows, p.words())
}

// MulT computes columns lo to hi-1 of dst = a · pᵀ as [Packed.MulT] does, with the exactness of [MatMulBF16].
func (p *PackedBF16) MulT(dst []float32, a []uint16, m, ldd, lda, lo, hi int) {
	checkColumns("PackedBF16.MulT", lo, hi, p.rows)
	checkMatrix("PackedBF16.MulT", "dst", len(dst), m, hi, ldd)
	checkMatrix("PackedBF16.MulT", "a", len(a), m, p.cols, lda)
	g := gemm{a: halves(a, p.cols, lda, p.pairs), b: gemmSide{layout: gemmPacked, f: p.panels}, k: p.words(), ldd: ldd, pairs: p.pairs}
	g.run(dst, 0, m, lo, hi)
}

// F32ToBF16 rounds to the nearest bf16, ties to even; a NaN stays one. dst is as long as src or longer.
func F32ToBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := f32ToBF16(dst, src)
	f32ToBF16Generic(dst[n:], src[n:])
}

func f32ToBF16Generic(dst []uint16, src []float32) {
	for i, v := range src {
		b := math.Float32bits(v)
		if v != v {
			dst[i] = uint16(b>>16) | 0x40
			continue
		}
		dst[i] = uint16((b + 0x7fff + b>>16&1) >> 16)
	}
}

// widenBF16 is exact. dst is as long as src.
func widenBF16(dst []float32, src []uint16) {
	n := widen(dst, src)
	for i, h := range src[n:] {
		dst[n+i] = math.Float32frombits(uint32(h) << 16)
	}
}

// transposePairsGeneric writes the pairs of rows of n values as columns of words; the second value of a last pair may be
// missing and is 0 then.
func transposePairsGeneric(dst []float32, src []uint16, rows, n, lddst, ldsrc int) {
	for r := range rows {
		row := src[r*ldsrc:][:n]
		for p := 0; 2*p < n; p++ {
			word := uint32(row[2*p])
			if 2*p+1 < n {
				word |= uint32(row[2*p+1]) << 16
			}
			dst[p*lddst+r] = math.Float32frombits(word)
		}
	}
}
