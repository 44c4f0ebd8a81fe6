//go:build (!amd64 && !arm64) || purego

package kernel

func bf16ToF32(dst []float32, src []byte) { bf16ToF32Generic(dst, src) }

func f16ToF32(dst []float32, src []byte) { f16ToF32Generic(dst, src) }

func f32ToF16(dst []byte, src []float32) { f32ToF16Generic(dst, src) }
