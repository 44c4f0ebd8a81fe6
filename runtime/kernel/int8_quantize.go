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

func quantizeBlock(codes []uint8, x []float32, stride int, quant, bias float32, away bool) int32 {
	if stride == 0 {
		return quantizeBlockGeneric(codes, x, stride, quant, bias, away)
	}
	n, sum := len(x)&^7, 0
	if n > 0 {
		_ = codes[(n/4-1)*stride+3]
		if away {
			sum = int8RoundAwaySIMD(&codes[0], &x[0], n, stride, quant, bias)
		} else {
			sum = int8RoundEvenSIMD(&codes[0], &x[0], n, stride, quant, bias)
		}
	}
	if n == len(x) {
		return int32(sum)
	}
	codes = codes[n/4*stride:]
	clear(codes[:4])
	clear(codes[stride:][:4]) // padding counts as 0
	return int32(sum) + quantizeBlockGeneric(codes, x[n:], stride, quant, bias, away)
}
