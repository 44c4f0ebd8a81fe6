//go:build !purego

package kernel

func exactNorm(dst, x, gamma []float32, rows int, eps float32) {
	width, full := len(gamma), len(gamma)&^7
	if !use.avx2 || full == 0 {
		rmsNormGeneric(dst, x, gamma, rows, eps)
		return
	}
	var lanes [normChunk][8]float64
	var scales [normChunk]float64
	exactSquaresSIMD(&lanes[0][0], &x[0], rows, full, width)
	for r := range rows {
		scales[r] = exactInvStd(&lanes[r], x[r*width+full:(r+1)*width], width, eps)
	}
	exactNormalizeSIMD(&dst[0], &x[0], &gamma[0], &scales[0], rows, full, width)
	if full < width {
		for r := range rows {
			exactNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, scales[r])
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
	normalizePackedSIMD(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	if full < width {
		for r := range rows {
			enginePackedNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, invs[r])
		}
	}
}
