//go:build !purego

package kernel

// Each of these takes n elements, a multiple of eight and not 0. dst may be x or y.

//go:noescape
func addNEON(dst, x, y *float32, n int)

//go:noescape
func mulNEON(dst, x, y *float32, n int)

//go:noescape
func scaleNEON(dst, x *float32, n int, factor float32)

// piece is how many of n > 7 elements the next call takes.
func piece(n int) int { return min(n&^7, elementPiece) }

func add(dst, x, y []float32) {
	for use.neon && len(dst) >= 8 {
		n := piece(len(dst))
		addNEON(&dst[0], &x[0], &y[0], n)
		dst, x, y = dst[n:], x[n:], y[n:]
	}
	addGeneric(dst, x, y)
}

func mul(dst, x, y []float32) {
	for use.neon && len(dst) >= 8 {
		n := piece(len(dst))
		mulNEON(&dst[0], &x[0], &y[0], n)
		dst, x, y = dst[n:], x[n:], y[n:]
	}
	mulGeneric(dst, x, y)
}

func scale(dst, x []float32, factor float32) {
	for use.neon && len(dst) >= 8 {
		n := piece(len(dst))
		scaleNEON(&dst[0], &x[0], n, factor)
		dst, x = dst[n:], x[n:]
	}
	scaleGeneric(dst, x, factor)
}

func peaks(x []float32) (top float32, size uint32) { return peaksGeneric(x) }

func atLeast(x []float32, limit float32) int { return atLeastGeneric(x, limit) }

func nonFinite(x []float32) int { return nonFiniteGeneric(x) }
