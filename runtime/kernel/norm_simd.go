//go:build (amd64 || arm64) && !purego

package kernel

func engineNorm(dst, x, gamma []float32, rows int, eps float32) {
	width, full := len(gamma), len(gamma)&^7
	if !use.simd() || full == 0 {
		engineNormGeneric(dst, x, gamma, rows, eps)
		return
	}
	var lanes [normChunk][8]float32
	var invs [normChunk]float32
	engineSquaresSIMD(&lanes[0][0], &x[0], rows, full, width)
	for r := range rows {
		invs[r] = engineInvStd(engineLaneSum(&lanes[r]), x[r*width+full:(r+1)*width], width, eps)
	}
	normalizeSIMD(&dst[0], &x[0], &gamma[0], &invs[0], rows, full, width)
	if full < width {
		for r := range rows {
			engineNormalizeTail(dst[r*width:(r+1)*width], x[r*width:(r+1)*width], gamma, full, invs[r])
		}
	}
}
