//go:build !amd64 || purego

package kernel

func blockExtremes(lo, hi, x []float32, block int) { blockExtremesGeneric(lo, hi, x, block) }

func gridCodes(dst []uint8, x, zero, inverse []float32, block, bits int) {
	gridCodesGeneric(dst, x, zero, inverse, block, bits)
}

func packCodes(dst []byte, codes []uint8, bits int) { packCodesGeneric(dst, codes, bits) }
