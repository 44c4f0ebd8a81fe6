package kernel

import (
	"fmt"
	"math"
)

// Add writes x + y to dst, each sum rounded once. dst may be x or y. It panics unless all have the same length.
func Add(dst, x, y []float32) {
	checkThree("Add", dst, x, y)
	add(dst, x, y)
}

// Mul writes x * y to dst, element by element, each product rounded once. dst may be x or y. It panics unless all have
// the same length.
func Mul(dst, x, y []float32) {
	checkThree("Mul", dst, x, y)
	mul(dst, x, y)
}

// Scale writes x * factor to dst, each product rounded once. dst may be x. It panics unless both have the same length.
func Scale(dst, x []float32, factor float32) {
	if len(dst) != len(x) {
		panic(fmt.Sprintf("internal error: kernel.Scale: lengths %d, %d", len(dst), len(x)))
	}
	scale(dst, x, factor)
}

// Shift writes x + term to dst, each sum rounded once. dst may be x. It panics unless both have the same length.
func Shift(dst, x []float32, term float32) {
	if len(dst) != len(x) {
		panic(fmt.Sprintf("internal error: kernel.Shift: lengths %d, %d", len(dst), len(x)))
	}
	shift(dst, x, term)
}

// AddScaled adds x * factor to dst, product and sum each rounded once. It panics unless both have the same length.
func AddScaled(dst, x []float32, factor float32) {
	if len(dst) != len(x) {
		panic(fmt.Sprintf("internal error: kernel.AddScaled: lengths %d, %d", len(dst), len(x)))
	}
	addScaled(dst, x, factor)
}

// AddShifted adds x * factor + term to dst, the product and both sums each rounded once. It panics unless both have the same length.
func AddShifted(dst, x []float32, factor, term float32) {
	if len(dst) != len(x) {
		panic(fmt.Sprintf("internal error: kernel.AddShifted: lengths %d, %d", len(dst), len(x)))
	}
	addShifted(dst, x, factor, term)
}

// AddScaledRows is [AddScaled] for the rows of x [len(factors), len(dst)], one after the other. It panics unless x has so many elements.
func AddScaledRows(dst, x, factors []float32) {
	if len(x) != len(dst)*len(factors) {
		panic(fmt.Sprintf("internal error: kernel.AddScaledRows: %d elements for %d rows of %d", len(x), len(factors), len(dst)))
	}
	addScaledRows(dst, x, factors)
}

// AbsMax is the largest magnitude of x, 0 for none. If x holds a NaN the result is one.
func AbsMax(x []float32) float32 {
	_, size := peaks(x)
	return math.Float32frombits(size)
}

// NonFinite is the index of the first NaN or infinity of x, or -1.
func NonFinite(x []float32) int {
	if i := nonFinite(x); i < len(x) {
		return i
	}
	return -1
}

// ArgMax is the index of the largest element of row, the smallest index of several. NaNs are ignored; a row without numbers
// gives 0.
func ArgMax(row []float32) int {
	top, best := float32(math.Inf(-1)), -1
	for lo := 0; lo < len(row); lo += elementPiece {
		piece := row[lo:min(lo+elementPiece, len(row))]
		if t, _ := peaks(piece); best < 0 || t > top {
			top, best = t, lo
		}
	}
	if best < 0 {
		return 0
	}
	// A piece of only NaNs gives the same result as one of -Inf.
	if i := best + atLeast(row[best:], top); i < len(row) {
		return i
	}
	return 0
}

// elementPiece is a multiple of eight that keeps a call of SIMD code, which nothing can interrupt, to microseconds.
const elementPiece = 1 << 14

// maxOf is the largest element, -Inf for none, NaN if one is NaN.
func maxOf(x []float32) float32 {
	top, size := peaks(x)
	if size > infinity {
		return float32(math.NaN())
	}
	return top
}

// infinity is the magnitude of an infinite float32; that of a NaN is above it.
const infinity = 0x7f800000

func checkThree(name string, dst, x, y []float32) {
	if len(x) != len(dst) || len(y) != len(dst) {
		panic(fmt.Sprintf("internal error: kernel.%s: lengths %d, %d, %d", name, len(dst), len(x), len(y)))
	}
}
