//go:build !purego

package kernel

func halfDots(dst *[halfLanes]float32, x []float32, w []float64) {
	if !use.avx2 || len(x) == 0 {
		halfDotsGeneric(dst, x, w)
		return
	}
	var high [4]float64
	_ = w[halfLanes*len(x)-1]
	halfDotsAVX2(&dst[0], &high[0], &x[0], &w[0], len(x))
	if !(max(high[0], high[1], high[2], high[3]) < 0x1p15) {
		halfDotsFar(dst[:], x, w)
	}
}
