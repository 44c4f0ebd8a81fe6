package kernel

import "math"

// expPiece is how many exponentials are computed together: a multiple of the eight lanes of a sum.
const expPiece = 64

// The sums and divisions below are the same in every tier; only exps has SIMD code.

func softmaxGeneric(x []float32) {
	top := float64(maxOf(x))
	var s [8]float64
	var e [expPiece]float64
	for rest := x; len(rest) > 0; {
		piece := rest[:min(len(rest), len(e))]
		rest = rest[len(piece):]
		for i, v := range piece {
			e[i] = float64(v) - top
		}
		exps(e[:len(piece)])
		for i, v := range e[:len(piece)] {
			w := float32(v)
			piece[i] = w
			s[i%8] += float64(w)
		}
	}
	scale := 1 / sumLanes(&s)
	for i, v := range x {
		x[i] = float32(float64(v) * scale)
	}
}

// sumExpGeneric is sum(exp(row - top)); position i belongs to lane i mod 8.
func sumExpGeneric(row []float32, top float32) float64 {
	var s [8]float64
	var e [expPiece]float64
	for len(row) > 0 {
		n := min(len(row), len(e))
		for i, v := range row[:n] {
			e[i] = float64(v) - float64(top)
		}
		exps(e[:n])
		for i, v := range e[:n] {
			s[i%8] += v
		}
		row = row[n:]
	}
	return sumLanes(&s)
}

func siluGeneric(dst, x []float32) {
	var e [expPiece]float64
	for len(x) > 0 {
		n := min(len(x), len(e))
		for i, v := range x[:n] {
			e[i] = -float64(v)
		}
		exps(e[:n])
		for i, v := range x[:n] {
			dst[i] = float32(float64(v) / (1 + e[i]))
		}
		dst, x = dst[n:], x[n:]
	}
}

// maxOf is the largest element, -Inf for none, NaN if one is NaN.
func maxOf(x []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top || v != v {
			top = v
		}
		if top != top {
			break
		}
	}
	return top
}
