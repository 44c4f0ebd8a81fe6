//go:build !purego

package kernel

// rotateNEON turns heads > 0 heads; half, len(cos)/2, is a multiple of four and not 0.
//
//go:noescape
func rotateNEON(dst, x, cos, sin *float32, half, heads, dim int)

func rotate(dst, x, cos, sin []float32, heads, dim int) {
	half := len(cos) / 2
	if !use.neon || half%4 != 0 {
		rotateGeneric(dst, x, cos, sin, heads, dim)
		return
	}
	for batch := max(elementPiece/dim, 1); heads > 0; {
		n := min(heads, batch)
		rotateNEON(&dst[0], &x[0], &cos[0], &sin[0], half, n, dim)
		dst, x, heads = dst[n*dim:], x[n*dim:], heads-n
	}
}
