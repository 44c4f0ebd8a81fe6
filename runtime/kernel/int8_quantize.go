//go:build (amd64 || arm64) && !purego

package kernel

func minMax(x []float32) (lo, hi float32) {
	n := len(x) &^ 7
	if layoutOfInt8().group == 0 || n == 0 {
		return minMaxGeneric(x)
	}
	lo, hi = int8RangeSIMD(&x[0], n)
	for _, v := range x[n:] {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

func quantizeBlock(codes []uint8, x []float32, half, eight int, quant, bias float32, away bool) int32 {
	if half == 0 {
		return quantizeBlockGeneric(codes, x, half, eight, quant, bias, away)
	}
	n, sum := len(x)&^7, 0
	if n > 0 {
		_ = codes[(n/8-1)*eight+half+3]
		sum = int8Round(&codes[0], &x[0], n, half, eight, quant, bias, away)
	}
	if n == len(x) {
		return int32(sum)
	}
	codes = codes[n/8*eight:]
	clear(codes[:4])
	clear(codes[half:][:4]) // padding counts as 0
	return int32(sum) + quantizeBlockGeneric(codes, x[n:], half, eight, quant, bias, away)
}
