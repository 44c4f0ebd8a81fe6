//go:build (!amd64 && !arm64) || purego

package kernel

func engineExps(dst, x []float32) { engineExpsGeneric(dst, x) }
