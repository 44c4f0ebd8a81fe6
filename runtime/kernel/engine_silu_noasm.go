//go:build (!amd64 && !arm64) || purego

package kernel

func engineSiLU(dst, x []float32) { engineSiLUGeneric(dst, x) }

func engineSiLUMul(dst, gate, up []float32) { engineSiLUMulGeneric(dst, gate, up) }
