//go:build (amd64 || arm64) && !purego

package kernel

// The functions of assembly take n elements, a multiple of eight and not 0. dst may be x or y.

// piece is the number of elements, of n > 7, that the next call takes.
func piece(n int) int { return min(n&^7, elementPiece) }

func add(dst, x, y []float32) {
	for use.simd() && len(dst) >= 8 {
		n := piece(len(dst))
		addSIMD(&dst[0], &x[0], &y[0], n)
		dst, x, y = dst[n:], x[n:], y[n:]
	}
	addGeneric(dst, x, y)
}

func mul(dst, x, y []float32) {
	for use.simd() && len(dst) >= 8 {
		n := piece(len(dst))
		mulSIMD(&dst[0], &x[0], &y[0], n)
		dst, x, y = dst[n:], x[n:], y[n:]
	}
	mulGeneric(dst, x, y)
}

func scale(dst, x []float32, factor float32) {
	for use.simd() && len(dst) >= 8 {
		n := piece(len(dst))
		scaleSIMD(&dst[0], &x[0], n, factor)
		dst, x = dst[n:], x[n:]
	}
	scaleGeneric(dst, x, factor)
}

func addScaled(dst, x []float32, factor float32) {
	for use.simd() && len(dst) >= 8 {
		n := piece(len(dst))
		addScaledSIMD(&dst[0], &x[0], n, factor)
		dst, x = dst[n:], x[n:]
	}
	addScaledGeneric(dst, x, factor)
}
