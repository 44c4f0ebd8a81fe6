//go:build !purego

package kernel

// expsAVX2 replaces elements by their Exp, in groups of four, and returns the number of elements done. It stops before a
// group that holds a NaN or an element beyond +-700, and when fewer than four are left.
//
//go:noescape
func expsAVX2(x *float64, n int) int

func exps(x []float64) {
	for use.avx2 && len(x) >= 4 {
		done := expsAVX2(&x[0], len(x))
		x = x[done:]
		if len(x) >= 4 {
			expsGeneric(x[:4])
			x = x[4:]
		}
	}
	expsGeneric(x)
}
