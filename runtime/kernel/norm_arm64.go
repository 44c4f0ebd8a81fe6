//go:build !purego

package kernel

// enginePackedNorm adds squares one by one; only the products have SIMD code.
func enginePackedNorm(dst, x, gamma []float32, rows int, eps float32) {
	width, full := len(gamma), len(gamma)&^7
	if !use.neon || full == 0 {
		enginePackedNormGeneric(dst, x, gamma, rows, eps)
		return
	}
	var invs [normChunk]float32
	for r := range rows {
		invs[r] = engineInvStd(0, x[r*width:(r+1)*width], width, eps)
	}
	normalizePackedNEON(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	for r := 0; r < rows && full < width; r++ {
		enginePackedNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, invs[r])
	}
}
