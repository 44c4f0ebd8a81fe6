//go:build !amd64 || purego

package kernel

func matMulT(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	matMulTGeneric(dst, a, b, m, n, k, ldd, lda, ldb)
}
