//go:build !purego

package kernel

// rtnGroup is the number of elements that the assembly takes at once.
const rtnGroup = 16

func blockExtremes(lo, hi, x []float32, block int) {
	if !use.avx2 || block < rtnGroup {
		blockExtremesGeneric(lo, hi, x, block)
		return
	}
	if block%rtnGroup == 0 && block <= elementPiece {
		for len(lo) > 0 {
			n := min(len(lo), elementPiece/block)
			extremesSIMD(&lo[0], &hi[0], &x[0], block, n)
			lo, hi, x = lo[n:], hi[n:], x[n*block:]
		}
		return
	}
	for i := range lo {
		extremesLong(lo[i:i+1], hi[i:i+1], x[i*block:(i+1)*block])
	}
}

// extremesLong takes one block of any length from rtnGroup on.
func extremesLong(lo, hi, x []float32) {
	join := func(l, h float32) {
		both := [4]float32{lo[0], hi[0], l, h}
		blockExtremesGeneric(lo, hi, both[:], len(both))
	}
	lo[0], hi[0] = x[0], x[0]
	var l, h [1]float32
	for len(x) >= rtnGroup {
		n := min(len(x), elementPiece) &^ (rtnGroup - 1)
		extremesSIMD(&l[0], &h[0], &x[0], n, 1)
		join(l[0], h[0])
		x = x[n:]
	}
	if len(x) > 0 {
		blockExtremesGeneric(l[:], h[:], x, len(x))
		join(l[0], h[0])
	}
}

func gridCodes(dst []uint8, x, zero, inverse []float32, block, bits int) {
	if !use.avx2 || block < rtnGroup {
		gridCodesGeneric(dst, x, zero, inverse, block, bits)
		return
	}
	if block%rtnGroup == 0 && block <= elementPiece {
		for len(zero) > 0 {
			n := min(len(zero), elementPiece/block)
			gridCodesBlocks(dst[:n*block], x[:n*block], zero[:n], inverse[:n], block, bits)
			dst, x, zero, inverse = dst[n*block:], x[n*block:], zero[n:], inverse[n:]
		}
		return
	}
	for i := range zero {
		d, v := dst[i*block:(i+1)*block], x[i*block:(i+1)*block]
		for len(v) >= rtnGroup {
			n := min(len(v), elementPiece) &^ (rtnGroup - 1)
			gridCodesBlocks(d[:n], v[:n], zero[i:i+1], inverse[i:i+1], n, bits)
			d, v = d[n:], v[n:]
		}
		gridCodesGeneric(d, v, zero[i:i+1], inverse[i:i+1], len(v), bits)
	}
}

func gridCodesBlocks(dst []uint8, x, zero, inverse []float32, block, bits int) {
	bias, top := gridTerms(bits)
	gridCodesSIMD(&dst[0], &x[0], &zero[0], &inverse[0], block, len(zero), bias, top)
}

func packCodes(dst []byte, codes []uint8, bits int) {
	for use.avx2 && bits >= 2 && bits <= 6 && len(codes) >= rtnGroup {
		n := min(len(codes), elementPiece) &^ (rtnGroup - 1)
		packCodesAVX2(bits, &dst[0], &codes[0], n)
		dst, codes = dst[n/8*bits:], codes[n:]
	}
	packCodesGeneric(dst, codes, bits)
}
