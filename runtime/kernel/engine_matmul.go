package kernel

import (
	"fmt"
	"sync"
)

// EngineMatMul writes the product of the matrices a [e, l] and b [l, h] to dst [e, h]; with transposeA a is [l, e], with
// transposeB b is [h, l]. It panics if a slice is too short or a dimension is not positive.
//
// With two or more rows and columns sums are ascending and fused, except for a row that the engine's tiles leave alone (see
// [EngineAttention]). A single row or column is summed in lanes where its factors lie one after the other: lane i takes the
// terms i, i+8, ..., fused, and the lanes are added as ((0+1)+(2+3)) + ((4+5)+(6+7)).
//
// Emulates CPUMatMul.cpp with _AVX_MNNPackedMatMulFMA, _AVX_MNNPackedMatMulRemainFMA, _AVX_MNNComputeMatMulForE_1FMA and
// _AVX_MNNComputeMatMulForH_1FMA (avxfma/GemmAVX2FMA.cpp), on CPUs with FMA.
func EngineMatMul(dst, a, b []float32, e, l, h int, transposeA, transposeB bool) {
	if e <= 0 || l <= 0 || h <= 0 || len(dst) < e*h || len(a) < e*l || len(b) < l*h {
		panic(fmt.Sprintf("internal error: kernel.EngineMatMul: %d values of %d and %d for %d x %d x %d", len(dst), len(a), len(b), e, l, h))
	}
	switch {
	case h == 1:
		engineColumn(dst, a, b, e, l, transposeA)
	case e == 1:
		engineRow(dst, a, b, l, h, transposeB)
	default:
		s := matMulScratches.Get().(*matMulScratch)
		defer matMulScratches.Put(s)
		s.multiply(dst, a, b, e, l, h, h, transposeA, transposeB)
	}
}

// matMulScratch is memory of a worker.
type matMulScratch struct {
	rows []float32 // a, if it comes transposed
	tile []float32 // 16 columns of b, [l][16]
	x    []float32 // a in lanes, [blocks of rows][l][lanes]
	sums []float32 // [16][lanes]

	first, second []float32 // factors with a bias
}

var matMulScratches = sync.Pool{New: func() any { return new(matMulScratch) }}

func (s *matMulScratch) multiply(dst, a, b []float32, e, l, h, ldd int, transposeA, transposeB bool) {
	if transposeA {
		s.rows = resized(s.rows, e*l)
		for i := range l {
			for r := range e {
				s.rows[r*l+i] = a[i*e+r]
			}
		}
		a = s.rows
	}
	alone := leavesOne(e) // the last row
	first := 0            // of the rows that the general product does not compute
	if l <= gemmSegment {
		if transposeB {
			MatMulT(dst, a, b, e, h, l, ldd, l, l)
		} else {
			MatMul(dst, a, b, e, h, l, ldd, l, h)
		}
		if first = e - 1; !alone {
			return
		}
	}
	lanes := tileLanes()
	s.sums = resized(s.sums, tileColumns*max(lanes, 1))
	blocks := 0
	if lanes > 0 && e-first > 1 {
		blocks = (e + lanes - 1) / lanes
		s.gather(a, e, l, lanes)
	}
	s.tile = resized(s.tile, l*tileColumns)
	for c := 0; c < h; c += tileColumns {
		n := min(tileColumns, h-c)
		s.fill(b, c, n, l, h, transposeB)
		for i := range blocks {
			tileRows(s.sums, s.x[i*l*lanes:], s.tile, l)
			for r := i * lanes; r < min((i+1)*lanes, e); r++ {
				out := dst[r*ldd+c:][:n]
				for k := range out {
					out[k] = s.sums[k*lanes+r%lanes]
				}
			}
		}
		if blocks == 0 {
			for r := first; r < e; r++ {
				sum := tileSum(a[r*l:][:l], s.tile, false)
				copy(dst[r*ldd+c:][:n], sum[:])
			}
		}
		if alone {
			p := tileProduct{heads: 1, n: l, count: 1, dstStride: tileColumns, xStride: l, tStride: l * tileColumns}
			p.quad(s.sums[:tileColumns], a[(e-1)*l:][:l], s.tile, 1, nil, nil)
			copy(dst[(e-1)*ldd+c:][:n], s.sums[:])
		}
	}
}

// gather puts element i of row r to [r/lanes][i][r%lanes]; lanes that are not used repeat the last row.
func (s *matMulScratch) gather(a []float32, e, l, lanes int) {
	blocks := (e + lanes - 1) / lanes
	s.x = resized(s.x, blocks*l*lanes)
	var rows [8]int
	for r := 0; r < blocks*lanes; r += len(rows) {
		for i := range rows {
			rows[i] = min(r+i, e-1) * l
		}
		gatherColumns(s.x[r/lanes*l*lanes+r%lanes:], a, &rows, lanes, l)
	}
}

// fill makes the tile of n columns of b from column c on.
func (s *matMulScratch) fill(b []float32, c, n, l, h int, transposeB bool) {
	if n < tileColumns {
		clear(s.tile)
	}
	if !transposeB {
		for i := range l {
			copy(s.tile[i*tileColumns:][:n], b[i*h+c:])
		}
		return
	}
	if n == tileColumns {
		var rows [8]int
		for half := 0; half < tileColumns; half += len(rows) {
			for k := range rows {
				rows[k] = (c + half + k) * l
			}
			gatherColumns(s.tile[half:], b, &rows, tileColumns, l)
		}
		return
	}
	for k := range n {
		for i, v := range b[(c+k)*l:][:l] {
			s.tile[i*tileColumns+k] = v
		}
	}
}

// engineRow is a product with one row.
func engineRow(dst, a, b []float32, l, h int, transposeB bool) {
	if transposeB {
		full := l &^ 7
		for y := range h {
			row := b[y*l:][:l]
			dst[y] = tailDot(0, a[full:l], row[full:]) + laneDot(a[:full], row[:full])
		}
		return
	}
	for y := range h {
		dst[y] = fusedDot(a[:l], b[y:], h)
	}
}

// engineColumn is a product with one column.
func engineColumn(dst, a, b []float32, e, l int, transposeA bool) {
	if transposeA {
		for y := range e {
			dst[y] = fusedDot(b[:l], a[y:], e)
		}
		return
	}
	full := l &^ 7
	for y := range e {
		row := a[y*l:][:l]
		if y < e&^7 {
			dst[y] = laneDot(row, b[:l])
			continue
		}
		lanes := lanesOf(row[:full], b[:full])
		dst[y] = tailDot(engineLaneSum(&lanes), row[full:], b[full:l])
	}
}

// fusedDot is the sum of x[i]*y[i*step], ascending and fused.
func fusedDot(x, y []float32, step int) float32 {
	var sum float64
	for i, v := range x {
		sum = fma32(float64(v), float64(y[i*step]), sum)
	}
	return float32(sum)
}

// tailDot adds the fewer than eight products x[i]*y[i] to sum: of four or more the first four are rounded before they are
// added, as the compiler has divided the engine's loop, and the others are fused.
func tailDot(sum float32, x, y []float32) float32 {
	if len(x) >= 4 {
		for i, v := range x[:4] {
			sum += float32(v * y[i])
		}
		x, y = x[4:], y[4:]
	}
	for i, v := range x {
		sum = float32(fma32(float64(v), float64(y[i]), float64(sum)))
	}
	return sum
}

// lanesOf are the sums of every eighth product.
func lanesOf(x, y []float32) (lanes [8]float32) {
	for i, v := range x {
		lanes[i%8] = float32(fma32(float64(v), float64(y[i]), float64(lanes[i%8])))
	}
	return lanes
}

// laneDot adds the lanes in pairs.
func laneDot(x, y []float32) float32 {
	s := lanesOf(x, y)
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
}

// biasRows is the number of rows that the engine takes at a time through the kernel whose sums begin with the bias.
const biasRows = 24

// EngineMatMulT is MatMulT in the engine's order for linear layers with float weights: what EngineMatMul does for several
// rows and columns, for any number of them. dst is [m, n] with rows ldd apart, a is [m, k], b is [n, k]; bias is [n] or
// nil. Sums of whole groups of 24 rows begin with the bias, that of the other rows is added after.
//
// Emulates Convolution1x1Strassen.cpp where it does not divide the product: Strassen's scheme wants 48 rows or more; with
// _AVX_MNNGemmFloatUnitMainFMA_Fused.S and AVX2GemmPostTreat.
func EngineMatMulT(dst, a, b, bias []float32, m, n, k, ldd int) {
	checkMatrix("EngineMatMulT", "dst", len(dst), m, n, ldd)
	checkMatrix("EngineMatMulT", "a", len(a), m, k, k)
	checkMatrix("EngineMatMulT", "b", len(b), n, k, k)
	if m == 0 || n == 0 || k == 0 {
		return
	}
	s := matMulScratches.Get().(*matMulScratch)
	defer matMulScratches.Put(s)
	if bias == nil {
		s.multiply(dst, a, b, m, k, n, ldd, false, true)
		return
	}
	whole := m / biasRows * biasRows
	if whole > 0 {
		// The bias as a first term: 1*bias is exact.
		s.biased(a, b, bias, whole, n, k)
		s.multiply(dst, s.first, s.second, whole, k+1, n, ldd, false, true)
	}
	if whole == m {
		return
	}
	s.multiply(dst[whole*ldd:], a[whole*k:], b, m-whole, k, n, ldd, false, true)
	for r := whole; r < m; r++ {
		for c, v := range bias[:n] {
			dst[r*ldd+c] += v
		}
	}
}

// biased puts a column of ones before a, and bias before the rows of b.
func (s *matMulScratch) biased(a, b, bias []float32, m, n, k int) {
	s.first, s.second = resized(s.first, m*(k+1)), resized(s.second, n*(k+1))
	for r := range m {
		s.first[r*(k+1)] = 1
		copy(s.first[r*(k+1)+1:][:k], a[r*k:])
	}
	for r := range n {
		s.second[r*(k+1)] = bias[r]
		copy(s.second[r*(k+1)+1:][:k], b[r*k:])
	}
}
