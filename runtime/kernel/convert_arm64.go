//go:build !purego

package kernel

const (
	convertGroup = 8
	// convertPiece keeps a call, which nothing can interrupt, to microseconds.
	convertPiece = 1 << 14
)

func bf16ToF32(dst []float32, src []byte) {
	for use.neon && len(dst) >= convertGroup {
		n := min(len(dst), convertPiece) &^ (convertGroup - 1)
		bf16ToF32NEON(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	bf16ToF32Generic(dst, src)
}

func f16ToF32(dst []float32, src []byte) {
	for use.neon && len(dst) >= convertGroup {
		n := min(len(dst), convertPiece) &^ (convertGroup - 1)
		f16ToF32NEON(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	f16ToF32Generic(dst, src)
}

func f32ToF16(dst []byte, src []float32) {
	for use.neon && len(src) >= convertGroup {
		n := min(len(src), convertPiece) &^ (convertGroup - 1)
		f32ToF16NEON(&dst[0], &src[0], n)
		dst, src = dst[2*n:], src[n:]
	}
	f32ToF16Generic(dst, src)
}
