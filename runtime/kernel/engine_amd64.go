//go:build !purego

package kernel

// fmaRowsFMA is fmaRows for width columns and n > 0 rows; it leaves the last width%8 columns alone.
//
//go:noescape
func fmaRowsFMA(dst, x, rows *float32, width, n, stride int)

// engineExpsFMA computes n elements, a multiple of eight and not 0. dst may be x.
//
//go:noescape
func engineExpsFMA(dst, x *float32, n int)

func fmaRows(dst, x, rows []float32, stride int) {
	if !use.avx2 || len(x) == 0 || len(dst) == 0 {
		fmaRowsGeneric(dst, x, rows, stride)
		return
	}
	_ = rows[(len(x)-1)*stride+len(dst)-1]
	fmaRowsFMA(&dst[0], &x[0], &rows[0], len(dst), len(x), stride)
}

func engineExps(dst, x []float32) {
	if !use.avx2 || len(dst) == 0 {
		engineExpsGeneric(dst, x)
		return
	}
	_ = x[len(dst)-1]
	engineExpsFMA(&dst[0], &x[0], len(dst))
}
