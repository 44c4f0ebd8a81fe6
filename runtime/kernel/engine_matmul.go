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
		s.multiply(dst, a, b, e, l, h, transposeA, transposeB)
	}
}

// matMulScratch is memory of a worker.
type matMulScratch struct{ rows, tile []float32 }

var matMulScratches = sync.Pool{New: func() any { return new(matMulScratch) }}

func (s *matMulScratch) multiply(dst, a, b []float32, e, l, h int, transposeA, transposeB bool) {
	if transposeA {
		s.rows = resized(s.rows, e*l)
		for i := range l {
			for r := range e {
				s.rows[r*l+i] = a[i*e+r]
			}
		}
		a = s.rows
	}
	single := leavesOne(e)
	first := 0 // row of the sums that the general product cannot make
	if l <= gemmSegment {
		if transposeB {
			MatMulT(dst, a, b, e, h, l, h, l, l)
		} else {
			MatMul(dst, a, b, e, h, l, h, l, h)
		}
		if first = e - 1; !single {
			return
		}
	}
	s.tile = resized(s.tile, l*tileColumns)
	for c := 0; c < h; c += tileColumns {
		n := min(tileColumns, h-c)
		clear(s.tile)
		for i := range l {
			for k := range n {
				if transposeB {
					s.tile[i*tileColumns+k] = b[(c+k)*l+i]
				} else {
					s.tile[i*tileColumns+k] = b[i*h+c+k]
				}
			}
		}
		for r := first; r < e; r++ {
			sum := tileSum(a[r*l:][:l], s.tile, single && r == e-1)
			copy(dst[r*h+c:][:n], sum[:])
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
