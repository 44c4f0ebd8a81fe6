package kernel

import "fmt"

// RotateHeads turns the first len(cos) elements of each head by halves; dst and x are [heads, dim], and the heads share
// the angles. With half = len(cos)/2, for j < half, every product and sum rounded to float32:
//
//	dst[j]      = x[j]*cos[j]           - x[j+half]*sin[j]
//	dst[j+half] = x[j+half]*cos[j+half] + x[j]*sin[j+half]
//
// The other elements are copied. dst may be x itself. It panics unless dst and x have heads*dim elements, and cos and sin
// the same even number of them, at most dim.
func RotateHeads(dst, x, cos, sin []float32, heads, dim int) {
	if len(dst) != heads*dim || len(x) != heads*dim || len(sin) != len(cos) || len(cos)%2 != 0 || len(cos) > dim {
		panic(fmt.Sprintf("internal error: kernel.RotateHeads: lengths %d, %d, %d, %d, %d heads of %d", len(dst), len(x), len(cos), len(sin), heads, dim))
	}
	if heads == 0 || dim == 0 {
		return
	}
	if cut := len(cos); cut < dim {
		for at := 0; at < len(x); at += dim {
			copy(dst[at+cut:at+dim], x[at+cut:at+dim])
		}
	}
	if len(cos) > 0 {
		rotate(dst, x, cos, sin, heads, dim)
	}
}

// EngineNormRotateHeads is [EngineRMSNormRows] of each head, with gamma and eps, and then [RotateHeads].
func EngineNormRotateHeads(dst, x, gamma, cos, sin []float32, heads, dim int, eps float32) {
	if len(gamma) != dim {
		panic(fmt.Sprintf("internal error: kernel.EngineNormRotateHeads: gamma has %d of %d", len(gamma), dim))
	}
	EngineRMSNormRows(dst, x, gamma, heads, eps)
	RotateHeads(dst, dst, cos, sin, heads, dim)
}

func rotateGeneric(dst, x, cos, sin []float32, heads, dim int) {
	half := len(cos) / 2
	for h := range heads {
		d, x := dst[h*dim:(h+1)*dim], x[h*dim:(h+1)*dim]
		for j := range half {
			a, b := x[j], x[j+half]
			d[j] = float32(a*cos[j]) - float32(b*sin[j])
			d[j+half] = float32(b*cos[j+half]) + float32(a*sin[j+half])
		}
	}
}
