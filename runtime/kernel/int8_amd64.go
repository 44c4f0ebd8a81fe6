//go:build !purego

package kernel

func layoutOfInt8() int8Layout {
	switch {
	case use.vnni:
		return int8Layout{rows: 8, group: 4}
	case use.avx2:
		return int8Layout{rows: 4, group: 4}
	}
	return int8Layout{rows: 1}
}

// int8Round is quantizeBlock of n elements, a multiple of eight, in a layout without pairs.
func int8Round(codes *byte, x *float32, n, half, _ int, quant, bias float32, away bool) int {
	if away {
		return int8RoundAwaySIMD(codes, x, n, half, quant, bias)
	}
	return int8RoundEvenSIMD(codes, x, n, half, quant, bias)
}

func int8Tile(c *int8Call, nibbles bool, tokens int) {
	switch {
	case use.vnni && nibbles:
		int8NibblesAVX512(tokens, c)
	case use.vnni:
		int8BytesAVX512(tokens, c)
	case use.avxvnni && nibbles:
		int8NibblesAVXVNNI(tokens, c)
	case use.avxvnni:
		int8BytesAVXVNNI(tokens, c)
	case nibbles:
		int8NibblesAVX2(tokens, c)
	default:
		int8BytesAVX2(tokens, c)
	}
}
