package kernel

import "fmt"

// Beyond returns the index of the first element of x whose magnitude is not below factor times the limit, or is none because one of them is
// a NaN; len(x) if there is none. It panics unless x and limits have the same length.
func Beyond(x, limits []float32, factor float32) int {
	if len(x) != len(limits) {
		panic(fmt.Sprintf("internal error: kernel.Beyond: lengths %d, %d", len(x), len(limits)))
	}
	return beyond(x, limits, factor)
}

// codeSumsMost is how many codes CodeSums takes at most.
const codeSumsMost = 128

// CodeSums returns the sums of code * x and of x, in float64 and in ascending order. Codes are integers from -128 to 127. It panics unless
// both have the same length, 128 at most.
func CodeSums(code, x []float32) (products, sum float64) {
	if len(code) != len(x) || len(x) > codeSumsMost {
		panic(fmt.Sprintf("internal error: kernel.CodeSums: lengths %d, %d", len(code), len(x)))
	}
	return codeSums(code, x)
}

// CodeErrors rounds every value to its own grid of so many bits, 1 to 8: q = clamp(round((value-zero)*inverse)), see [GridSums]. It stores
// -(value - (scale*q + zero)) / divisor in dst, every operation rounded to float32, and adds the square of that to squares in float64. zero,
// scale and inverse are finite. It panics unless all have the same length.
func CodeErrors(dst []float32, squares []float64, value, zero, scale, inverse []float32, divisor float32, bits int) {
	n := len(dst)
	if len(squares) != n || len(value) != n || len(zero) != n || len(scale) != n || len(inverse) != n || bits < 1 || bits > 8 {
		panic(fmt.Sprintf("internal error: kernel.CodeErrors: %d errors of %d bits, %d squares, %d values, %d zero terms, %d scales, %d inverses",
			n, bits, len(squares), len(value), len(zero), len(scale), len(inverse)))
	}
	codeErrors(dst, squares, value, zero, scale, inverse, divisor, bits)
}
