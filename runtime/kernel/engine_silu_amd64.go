//go:build !purego

package kernel

// Each of these takes n elements, a multiple of eight and not 0. dst may be x or y.

//go:noescape
func engineSiLUAVX2(dst, x *float32, n int)

//go:noescape
func engineSiLUAVX512(dst, x *float32, n int)

//go:noescape
func engineSiLUMulAVX2(dst, x, y *float32, n int)

//go:noescape
func engineSiLUMulAVX512(dst, x, y *float32, n int)

func engineSiLU(dst, x []float32) {
	if !use.avx2 {
		engineSiLUGeneric(dst, x)
		return
	}
	for len(dst) > 0 {
		n := piece(len(dst))
		if use.avx512 {
			engineSiLUAVX512(&dst[0], &x[0], n)
		} else {
			engineSiLUAVX2(&dst[0], &x[0], n)
		}
		dst, x = dst[n:], x[n:]
	}
}

func engineSiLUMul(dst, gate, up []float32) {
	if !use.avx2 {
		engineSiLUMulGeneric(dst, gate, up)
		return
	}
	for len(dst) > 0 {
		n := piece(len(dst))
		if use.avx512 {
			engineSiLUMulAVX512(&dst[0], &gate[0], &up[0], n)
		} else {
			engineSiLUMulAVX2(&dst[0], &gate[0], &up[0], n)
		}
		dst, gate, up = dst[n:], gate[n:], up[n:]
	}
}
