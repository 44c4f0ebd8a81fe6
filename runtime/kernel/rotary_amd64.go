//go:build !purego

package kernel

// These turn heads > 0 heads; half, len(cos)/2, is a multiple of eight and not 0.

//go:noescape
func rotateAVX2(dst, x, cos, sin *float32, half, heads, dim int)

//go:noescape
func rotateAVX512(dst, x, cos, sin *float32, half, heads, dim int)

func rotate(dst, x, cos, sin []float32, heads, dim int) {
	half := len(cos) / 2
	if !use.avx2 || half%8 != 0 {
		rotateGeneric(dst, x, cos, sin, heads, dim)
		return
	}
	for batch := max(elementPiece/dim, 1); heads > 0; {
		n := min(heads, batch)
		if use.avx512 {
			rotateAVX512(&dst[0], &x[0], &cos[0], &sin[0], half, n, dim)
		} else {
			rotateAVX2(&dst[0], &x[0], &cos[0], &sin[0], half, n, dim)
		}
		dst, x, heads = dst[n*dim:], x[n*dim:], heads-n
	}
}
