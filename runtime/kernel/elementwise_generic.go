package kernel

import "math"

func addGeneric(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func mulGeneric(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func scaleGeneric(dst, x []float32, factor float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = v * factor
	}
}

func shiftGeneric(dst, x []float32, term float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = v + term
	}
}

func addScaledGeneric(dst, x []float32, factor float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += float32(factor * x[i])
	}
}

func addShiftedGeneric(dst, x []float32, factor, term float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += float32(factor*x[i]) + term
	}
}

func addScaledRowsGeneric(dst, x, factors []float32) {
	for i, f := range factors {
		addScaled(dst, x[i*len(dst):][:len(dst)], f)
	}
}

// peaksGeneric returns the largest element, ignoring NaNs, and the bits of the largest magnitude.
func peaksGeneric(x []float32) (top float32, size uint32) {
	top = float32(math.Inf(-1))
	for _, v := range x {
		if v > top {
			top = v
		}
		size = max(size, math.Float32bits(v)&^(1<<31))
	}
	return top, size
}

// atLeastGeneric is the index of the first element, other than a NaN, that is not below limit; len(x) if there is none.
func atLeastGeneric(x []float32, limit float32) int {
	for i, v := range x {
		if v >= limit {
			return i
		}
	}
	return len(x)
}

// nonFiniteGeneric is the index of the first NaN or infinity, or len(x).
func nonFiniteGeneric(x []float32) int {
	for i, v := range x {
		if math.Float32bits(v)&infinity == infinity {
			return i
		}
	}
	return len(x)
}
