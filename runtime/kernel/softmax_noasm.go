//go:build !amd64 || purego

package kernel

func exps(x []float64) { expsGeneric(x) }
