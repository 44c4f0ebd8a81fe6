package kernel

import "fmt"

// A grid of b bits has a code for every value, q = clamp(round((x-zero)*inverse), -2^(b-1), 2^(b-1)-1), rounded to
// nearest with ties to even after the clamping, with every operation rounded to float32. The two functions below take
// one block of values and many grids: a search tries all of them at once, one grid in a lane.

// gridSpan is the number of values that are summed in float32, one after the other, before the sum is added in float64.
const gridSpan = 128

// GridSums stores the sums for a weighted least-squares fit of x by scale*q + zero, for each of len(zero) grids: the sums
// over the block of importance*q, of importance*q*q and of importance*q*x, each of len(zero) entries, one after the
// other in sums. Runs of 128 values are summed in float32, in order, and the runs in float64. x, zero and inverse must
// be finite. GridSums panics unless x and importance, and zero and inverse, have the same length, sums three times as
// many entries as zero, and bits is from 1 to 8.
func GridSums(sums []float64, x, importance, zero, inverse []float32, bits int) {
	if len(importance) != len(x) || len(inverse) != len(zero) || len(sums) != 3*len(zero) || bits < 1 || bits > 8 {
		panic(fmt.Sprintf("internal error: kernel.GridSums: %d sums of %d bits for %d values, %d importances, %d zero terms, %d inverses",
			len(sums), bits, len(x), len(importance), len(zero), len(inverse)))
	}
	clear(sums)
	for len(x) > 0 {
		n := min(len(x), gridSpan)
		gridSums(sums, x[:n], importance[:n], zero, inverse, bits)
		x, importance = x[n:], importance[n:]
	}
}

// GridErrors stores the sum over the block of importance*(x - zero - scale*q)^2 for each of len(zero) grids, summed as
// GridSums does. inverse is 1/scale in float32. x, zero, scale and inverse must be finite. GridErrors panics unless x
// and importance have the same length, zero, scale, inverse and errors have, and bits is from 1 to 8.
func GridErrors(errors []float64, x, importance, zero, scale, inverse []float32, bits int) {
	n := len(zero)
	if len(importance) != len(x) || len(scale) != n || len(inverse) != n || len(errors) != n || bits < 1 || bits > 8 {
		panic(fmt.Sprintf("internal error: kernel.GridErrors: %d errors of %d bits for %d values, %d importances, %d zero terms, %d scales, %d inverses",
			len(errors), bits, len(x), len(importance), n, len(scale), len(inverse)))
	}
	clear(errors)
	for len(x) > 0 {
		n := min(len(x), gridSpan)
		gridErrors(errors, x[:n], importance[:n], zero, scale, inverse, bits)
		x, importance = x[n:], importance[n:]
	}
}
