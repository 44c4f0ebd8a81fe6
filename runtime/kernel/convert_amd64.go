//go:build !purego

package kernel

const (
	convertGroup = 8
	convertWide  = 64
	// convertPiece keeps a call, which nothing can interrupt, to microseconds.
	convertPiece = 1 << 14
)

func bf16ToF32(dst []float32, src []byte) {
	for use.avx512 && len(dst) >= convertWide {
		n := min(len(dst), convertPiece) &^ (convertWide - 1)
		bf16ToF32AVX512(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	for use.avx2 && len(dst) >= convertGroup {
		n := min(len(dst), convertPiece) &^ (convertGroup - 1)
		bf16ToF32AVX2(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	bf16ToF32Generic(dst, src)
}

func f16ToF32(dst []float32, src []byte) {
	for use.avx512 && len(dst) >= convertWide {
		n := min(len(dst), convertPiece) &^ (convertWide - 1)
		f16ToF32AVX512(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	for use.avx2 && len(dst) >= convertGroup {
		n := min(len(dst), convertPiece) &^ (convertGroup - 1)
		f16ToF32F16C(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	f16ToF32Generic(dst, src)
}

func f32ToF16(dst []byte, src []float32) {
	for use.avx512 && len(src) >= convertWide {
		n := min(len(src), convertPiece) &^ (convertWide - 1)
		f32ToF16AVX512(&dst[0], &src[0], n)
		dst, src = dst[2*n:], src[n:]
	}
	for use.avx2 && len(src) >= convertGroup {
		n := min(len(src), convertPiece) &^ (convertGroup - 1)
		f32ToF16F16C(&dst[0], &src[0], n)
		dst, src = dst[2*n:], src[n:]
	}
	f32ToF16Generic(dst, src)
}
