//go:build !purego

package kernel

// Each of these takes n elements, a multiple of eight and not 0. dst may be x or y.

//go:noescape
func addAVX2(dst, x, y *float32, n int)

//go:noescape
func addAVX512(dst, x, y *float32, n int)

//go:noescape
func mulAVX2(dst, x, y *float32, n int)

//go:noescape
func mulAVX512(dst, x, y *float32, n int)

//go:noescape
func scaleAVX2(dst, x *float32, n int, factor float32)

//go:noescape
func scaleAVX512(dst, x *float32, n int, factor float32)

//go:noescape
func peaksAVX2(x *float32, n int) (top float32, size uint32)

//go:noescape
func peaksAVX512(x *float32, n int) (top float32, size uint32)

// These return n if there is no such element.

//go:noescape
func atLeastAVX2(x *float32, n int, limit float32) int

//go:noescape
func atLeastAVX512(x *float32, n int, limit float32) int

//go:noescape
func nonFiniteAVX2(x *float32, n int) int

//go:noescape
func nonFiniteAVX512(x *float32, n int) int

// piece is how many of n > 7 elements the next call takes.
func piece(n int) int { return min(n&^7, elementPiece) }

func add(dst, x, y []float32) {
	for use.avx2 && len(dst) >= 8 {
		n := piece(len(dst))
		if use.avx512 {
			addAVX512(&dst[0], &x[0], &y[0], n)
		} else {
			addAVX2(&dst[0], &x[0], &y[0], n)
		}
		dst, x, y = dst[n:], x[n:], y[n:]
	}
	addGeneric(dst, x, y)
}

func mul(dst, x, y []float32) {
	for use.avx2 && len(dst) >= 8 {
		n := piece(len(dst))
		if use.avx512 {
			mulAVX512(&dst[0], &x[0], &y[0], n)
		} else {
			mulAVX2(&dst[0], &x[0], &y[0], n)
		}
		dst, x, y = dst[n:], x[n:], y[n:]
	}
	mulGeneric(dst, x, y)
}

func scale(dst, x []float32, factor float32) {
	for use.avx2 && len(dst) >= 8 {
		n := piece(len(dst))
		if use.avx512 {
			scaleAVX512(&dst[0], &x[0], n, factor)
		} else {
			scaleAVX2(&dst[0], &x[0], n, factor)
		}
		dst, x = dst[n:], x[n:]
	}
	scaleGeneric(dst, x, factor)
}

func peaks(x []float32) (top float32, size uint32) {
	rest := x
	if use.avx2 {
		rest = x[len(x)&^7:]
	}
	top, size = peaksGeneric(rest)
	for x = x[:len(x)-len(rest)]; len(x) > 0; {
		n := piece(len(x))
		var t float32
		var s uint32
		if use.avx512 {
			t, s = peaksAVX512(&x[0], n)
		} else {
			t, s = peaksAVX2(&x[0], n)
		}
		top, size = max(top, t), max(size, s)
		x = x[n:]
	}
	return top, size
}

func atLeast(x []float32, limit float32) int {
	at := 0
	for use.avx2 && len(x)-at >= 8 {
		n, i := piece(len(x)-at), 0
		if use.avx512 {
			i = atLeastAVX512(&x[at], n, limit)
		} else {
			i = atLeastAVX2(&x[at], n, limit)
		}
		if at += i; i < n {
			return at
		}
	}
	return at + atLeastGeneric(x[at:], limit)
}

func nonFinite(x []float32) int {
	at := 0
	for use.avx2 && len(x)-at >= 8 {
		n, i := piece(len(x)-at), 0
		if use.avx512 {
			i = nonFiniteAVX512(&x[at], n)
		} else {
			i = nonFiniteAVX2(&x[at], n)
		}
		if at += i; i < n {
			return at
		}
	}
	return at + nonFiniteGeneric(x[at:])
}
