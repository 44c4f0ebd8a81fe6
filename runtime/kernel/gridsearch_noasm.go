//go:build !amd64 || purego

package kernel

func gridSums(sums []float64, x, importance, zero, inverse []float32, bits int) {
	gridSumsGeneric(sums, x, importance, zero, inverse, bits)
}

func gridErrors(errors []float64, x, importance, zero, scale, inverse []float32, bits int) {
	gridErrorsGeneric(errors, x, importance, zero, scale, inverse, bits)
}
