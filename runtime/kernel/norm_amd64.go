//go:build !purego

package kernel

// These write the sums of squares of eight lanes for each of rows > 0 rows that lie stride elements apart, over the
// first width columns, a multiple of eight and not 0.

//go:noescape
func engineSquaresAVX2(lanes, x *float32, rows, width, stride int)

//go:noescape
func exactSquaresAVX2(lanes *float64, x *float32, rows, width, stride int)

//go:noescape
func exactSquaresAVX512(lanes *float64, x *float32, rows, width, stride int)

// packedSquaresAVX2 adds the squares of 16 rows, which begin at the given bytes of x, one by one to the sums, over
// columns, a multiple of four and not 0.
//
//go:noescape
func packedSquaresAVX2(sums, x *float32, offsets *int, columns int)

// These write the first columns, a multiple of eight and not 0, of rows > 0 rows; inv and scale have one for each.

//go:noescape
func normalizeAVX2(dst, x, gamma, inv *float32, rows, columns, stride int)

//go:noescape
func normalizeAVX512(dst, x, gamma, inv *float32, rows, columns, stride int)

//go:noescape
func normalizePackedAVX2(dst, x, gamma, inv *float32, rows, columns, stride int)

//go:noescape
func normalizePackedAVX512(dst, x, gamma, inv *float32, rows, columns, stride int)

//go:noescape
func exactNormalizeAVX2(dst, x, gamma *float32, scale *float64, rows, columns, stride int)

//go:noescape
func exactNormalizeAVX512(dst, x, gamma *float32, scale *float64, rows, columns, stride int)

func exactNorm(dst, x, gamma []float32, rows int, eps float32) {
	width, full := len(gamma), len(gamma)&^7
	if !use.avx2 || full == 0 {
		rmsNormGeneric(dst, x, gamma, rows, eps)
		return
	}
	var lanes [normChunk][8]float64
	var scales [normChunk]float64
	if use.avx512 {
		exactSquaresAVX512(&lanes[0][0], &x[0], rows, full, width)
	} else {
		exactSquaresAVX2(&lanes[0][0], &x[0], rows, full, width)
	}
	for r := range rows {
		scales[r] = exactInvStd(&lanes[r], x[r*width+full:(r+1)*width], width, eps)
	}
	if use.avx512 {
		exactNormalizeAVX512(&dst[0], &x[0], &gamma[0], &scales[0], rows, full, width)
	} else {
		exactNormalizeAVX2(&dst[0], &x[0], &gamma[0], &scales[0], rows, full, width)
	}
	if full < width {
		for r := range rows {
			exactNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, scales[r])
		}
	}
}

func engineNorm(dst, x, gamma []float32, rows int, eps float32) {
	width, full := len(gamma), len(gamma)&^7
	if !use.avx2 || full == 0 {
		engineNormGeneric(dst, x, gamma, rows, eps)
		return
	}
	var lanes [normChunk][8]float32
	var invs [normChunk]float32
	engineSquaresAVX2(&lanes[0][0], &x[0], rows, full, width)
	for r := range rows {
		invs[r] = engineInvStd(engineLaneSum(&lanes[r]), x[r*width+full:(r+1)*width], width, eps)
	}
	if use.avx512 {
		normalizeAVX512(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	} else {
		normalizeAVX2(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	}
	if full < width {
		for r := range rows {
			engineNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, invs[r])
		}
	}
}

func enginePackedNorm(dst, x, gamma []float32, rows int, eps float32) {
	width, full := len(gamma), len(gamma)&^7
	if !use.avx2 || full == 0 {
		enginePackedNormGeneric(dst, x, gamma, rows, eps)
		return
	}
	var sums, invs [normChunk]float32
	if rows > 1 {
		var offsets [normChunk]int
		for r := range offsets {
			offsets[r] = 4 * width * min(r, rows-1)
		}
		packedSquaresAVX2(&sums[0], &x[0], &offsets[0], full)
	}
	for r := range rows {
		rest := x[r*width : (r+1)*width]
		if rows > 1 {
			rest = rest[full:]
		}
		invs[r] = engineInvStd(sums[r], rest, width, eps)
	}
	if use.avx512 {
		normalizePackedAVX512(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	} else {
		normalizePackedAVX2(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	}
	if full < width {
		for r := range rows {
			enginePackedNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, invs[r])
		}
	}
}
