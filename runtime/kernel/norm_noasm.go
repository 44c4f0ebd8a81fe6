//go:build (!amd64 && !arm64) || purego

package kernel

func exactNorm(dst, x, gamma []float32, rows int, eps float32) {
	rmsNormGeneric(dst, x, gamma, rows, eps)
}

func engineNorm(dst, x, gamma []float32, rows int, eps float32) {
	engineNormGeneric(dst, x, gamma, rows, eps)
}

func enginePackedNorm(dst, x, gamma []float32, rows int, eps float32) {
	enginePackedNormGeneric(dst, x, gamma, rows, eps)
}
