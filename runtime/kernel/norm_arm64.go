//go:build !purego

package kernel

// engineSquaresNEON writes the sums of squares of eight lanes for each of rows > 0 rows that lie stride elements apart,
// over the first width columns, a multiple of eight and not 0.
//
//go:noescape
func engineSquaresNEON(lanes, x *float32, rows, width, stride int)

// These write the first columns, a multiple of eight and not 0, of rows > 0 rows; inv has one element for each.

//go:noescape
func normalizeNEON(dst, x, gamma, inv *float32, rows, columns, stride int)

//go:noescape
func normalizePackedNEON(dst, x, gamma, inv *float32, rows, columns, stride int)

func exactNorm(dst, x, gamma []float32, rows int, eps float32) {
	rmsNormGeneric(dst, x, gamma, rows, eps)
}

func engineNorm(dst, x, gamma []float32, rows int, eps float32) {
	width, full := len(gamma), len(gamma)&^7
	if !use.neon || full == 0 {
		engineNormGeneric(dst, x, gamma, rows, eps)
		return
	}
	var lanes [normChunk][8]float32
	var invs [normChunk]float32
	engineSquaresNEON(&lanes[0][0], &x[0], rows, full, width)
	for r := range rows {
		invs[r] = engineInvStd(engineLaneSum(&lanes[r]), x[r*width+full:(r+1)*width], width, eps)
	}
	normalizeNEON(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	for r := 0; r < rows && full < width; r++ {
		engineNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, invs[r])
	}
}

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
