//go:build !purego

package kernel

// engineExpsNEON computes engineExp of x-shift for n elements, a multiple of eight and not 0. dst may be x.
//
//go:noescape
func engineExpsNEON(dst, x *float32, n int, shift float32)

func engineExps(dst, x []float32) {
	if !use.neon || len(dst) == 0 {
		engineExpsGeneric(dst, x)
		return
	}
	_ = x[len(dst)-1]
	engineExpsNEON(&dst[0], &x[0], len(dst), 0)
}
