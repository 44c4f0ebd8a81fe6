//go:build (amd64 || arm64) && !purego

package kernel

// rotate turns heads > 0 heads; half, len(cos)/2, is not 0.
func rotate(dst, x, cos, sin []float32, heads, dim int) {
	half := len(cos) / 2
	if !use.simd() || half%rotateGroup != 0 {
		rotateGeneric(dst, x, cos, sin, heads, dim)
		return
	}
	for batch := max(elementPiece/dim, 1); heads > 0; {
		n := min(heads, batch)
		rotateSIMD(&dst[0], &x[0], &cos[0], &sin[0], half, n, dim)
		dst, x, heads = dst[n*dim:], x[n*dim:], heads-n
	}
}
