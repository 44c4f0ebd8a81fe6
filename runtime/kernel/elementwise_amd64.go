//go:build !purego

package kernel

// addScaledRows takes all rows in one call if their length is a multiple of eight and one call takes so many elements.
func addScaledRows(dst, x, factors []float32) {
	n := len(dst)
	if use.avx2 && n >= 8 && n%8 == 0 && len(x) > 0 && len(x) <= elementPiece {
		addScaledRowsSIMD(&dst[0], &x[0], &factors[0], n, len(factors))
		return
	}
	addScaledRowsGeneric(dst, x, factors)
}

func addShifted(dst, x []float32, factor, term float32) {
	for use.avx2 && len(dst) >= 8 {
		n := piece(len(dst))
		addShiftedSIMD(&dst[0], &x[0], n, factor, term)
		dst, x = dst[n:], x[n:]
	}
	addShiftedGeneric(dst, x, factor, term)
}

func peaks(x []float32) (top float32, size uint32) {
	rest := x
	if use.avx2 {
		rest = x[len(x)&^7:]
	}
	top, size = peaksGeneric(rest)
	for x = x[:len(x)-len(rest)]; len(x) > 0; {
		n := piece(len(x))
		t, s := peaksSIMD(&x[0], n)
		top, size = max(top, t), max(size, s)
		x = x[n:]
	}
	return top, size
}

func atLeast(x []float32, limit float32) int {
	at := 0
	for use.avx2 && len(x)-at >= 8 {
		n := piece(len(x) - at)
		i := atLeastSIMD(&x[at], n, limit)
		if at += i; i < n {
			return at
		}
	}
	return at + atLeastGeneric(x[at:], limit)
}

func nonFinite(x []float32) int {
	at := 0
	for use.avx2 && len(x)-at >= 8 {
		n := piece(len(x) - at)
		i := nonFiniteSIMD(&x[at], n)
		if at += i; i < n {
			return at
		}
	}
	return at + nonFiniteGeneric(x[at:])
}

func engineGELU(dst, x []float32) {
	for use.avx2 && len(x) >= 8 {
		n := piece(len(x))
		engineGELUSIMD(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
	engineGELUGeneric(dst, x)
}

func shift(dst, x []float32, term float32) {
	for use.avx2 && len(x) >= 8 {
		n := piece(len(x))
		shiftSIMD(&dst[0], &x[0], n, term)
		dst, x = dst[n:], x[n:]
	}
	shiftGeneric(dst, x, term)
}
