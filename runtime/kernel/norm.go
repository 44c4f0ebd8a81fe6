package kernel

import "fmt"

// RMSNorm writes x / sqrt(mean(x²) + eps) * gamma to dst, for one row, computed in float64 and rounded once.
// dst may be x itself. It panics unless the three have the same length.
func RMSNorm(dst, x, gamma []float32, eps float32) {
	if len(x) != len(dst) || len(gamma) != len(dst) {
		panic(fmt.Sprintf("internal error: kernel.RMSNorm: lengths %d, %d, %d", len(dst), len(x), len(gamma)))
	}
	rmsNormGeneric(dst, x, gamma, eps)
}
