//go:build !purego

package kernel

// engineExpsFMA computes n elements, a multiple of eight and not 0. dst may be x.
//
//go:noescape
func engineExpsFMA(dst, x *float32, n int)

func engineExps(dst, x []float32) {
	if !use.avx2 || len(dst) == 0 {
		engineExpsGeneric(dst, x)
		return
	}
	_ = x[len(dst)-1]
	engineExpsFMA(&dst[0], &x[0], len(dst))
}
