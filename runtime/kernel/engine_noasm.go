//go:build !amd64 || purego

package kernel

func fmaRows(dst, x, rows []float32, stride int) { fmaRowsGeneric(dst, x, rows, stride) }

func engineExps(dst, x []float32) { engineExpsGeneric(dst, x) }
