//go:build (amd64 || arm64) && !purego

package kernel

func engineExps(dst, x []float32) {
	if !use.simd() {
		engineExpsGeneric(dst, x)
		return
	}
	for len(dst) > 0 {
		n := piece(len(dst))
		engineExpsSIMD(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
}

func engineSiLU(dst, x []float32) {
	if !use.simd() {
		engineSiLUGeneric(dst, x)
		return
	}
	for len(dst) > 0 {
		n := piece(len(dst))
		engineSiLUSIMD(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
}

func engineSiLUMul(dst, gate, up []float32) {
	if !use.simd() {
		engineSiLUMulGeneric(dst, gate, up)
		return
	}
	for len(dst) > 0 {
		n := piece(len(dst))
		engineSiLUMulSIMD(&dst[0], &gate[0], &up[0], n)
		dst, gate, up = dst[n:], gate[n:], up[n:]
	}
}
