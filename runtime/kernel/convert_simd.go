//go:build (amd64 || arm64) && !purego

package kernel

// The functions of assembly take n elements, a multiple of eight and not 0.

func bf16ToF32(dst []float32, src []byte) {
	for use.simd() && len(dst) >= 8 {
		n := piece(len(dst))
		bf16ToF32SIMD(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	bf16ToF32Generic(dst, src)
}

func f16ToF32(dst []float32, src []byte) {
	for use.simd() && len(dst) >= 8 {
		n := piece(len(dst))
		f16ToF32SIMD(&dst[0], &src[0], n)
		dst, src = dst[n:], src[2*n:]
	}
	f16ToF32Generic(dst, src)
}

func f32ToF16(dst []byte, src []float32) {
	for use.simd() && len(src) >= 8 {
		n := piece(len(src))
		f32ToF16SIMD(&dst[0], &src[0], n)
		dst, src = dst[2*n:], src[n:]
	}
	f32ToF16Generic(dst, src)
}
