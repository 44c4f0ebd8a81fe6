//go:build (!amd64 && !arm64) || purego

package kernel

func rotate(dst, x, cos, sin []float32, heads, dim int) { rotateGeneric(dst, x, cos, sin, heads, dim) }
