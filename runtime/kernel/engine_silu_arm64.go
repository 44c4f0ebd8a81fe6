//go:build !purego

package kernel

// Each of these takes n elements, a multiple of eight and not 0. dst may be x or up.

//go:noescape
func engineSiLUNEON(dst, x *float32, n int)

//go:noescape
func engineSiLUMulNEON(dst, x, up *float32, n int)

func engineSiLU(dst, x []float32) {
	if !use.neon {
		engineSiLUGeneric(dst, x)
		return
	}
	for len(dst) > 0 {
		n := piece(len(dst))
		engineSiLUNEON(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
}

func engineSiLUMul(dst, gate, up []float32) {
	if !use.neon {
		engineSiLUMulGeneric(dst, gate, up)
		return
	}
	for len(dst) > 0 {
		n := piece(len(dst))
		engineSiLUMulNEON(&dst[0], &gate[0], &up[0], n)
		dst, gate, up = dst[n:], gate[n:], up[n:]
	}
}
