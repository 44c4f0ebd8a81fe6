//go:build !purego

package kernel

import "unsafe"

// These are the kernels of gemm_amd64.go for words that are pairs of bf16.

//go:noescape
func gemm1x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm2x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm3x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm4x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm5x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm6x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm7x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm8x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm9x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm10x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm11x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm12x32BF16(c, a, b *float32, k, ldc int, add bool)

//go:noescape
func gemm1x128BF16(c, a, b *float32, k, ldb int, add bool)

// f32ToBF16AVX2 converts n values, a multiple of 16 and not 0.
//
//go:noescape
func f32ToBF16AVX2(dst *uint16, src *float32, n int)

// f32ToBF16 converts the first values and returns their number.
func f32ToBF16(dst []uint16, src []float32) int {
	done := 0
	for n := len(src) &^ 15; use.avx2 && done < n; {
		piece := min(n-done, convertPiece)
		f32ToBF16AVX2(&dst[done], &src[done], piece)
		done += piece
	}
	return done
}

// widen does so in the other direction, for no more than a panel.
func widen(dst []float32, src []uint16) int {
	n := len(src) &^ 7
	if !use.avx2 || n == 0 {
		return 0
	}
	_ = dst[n-1]
	bf16ToF32AVX2(&dst[0], (*byte)(unsafe.Pointer(&src[0])), n)
	return n
}

func gemmSumsBF16(c, a, b *float32, t *gemmTile) {
	switch t.rows {
	case 12:
		gemm12x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 11:
		gemm11x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 10:
		gemm10x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 9:
		gemm9x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 8:
		gemm8x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 7:
		gemm7x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 6:
		gemm6x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 5:
		gemm5x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 4:
		gemm4x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 3:
		gemm3x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 2:
		gemm2x32BF16(c, a, b, t.k, t.ldc, t.add)
	case 1:
		gemm1x32BF16(c, a, b, t.k, t.ldc, t.add)
	}
}

// transposePairs writes the pairs of rows of n values as columns of words; the second value of a last pair may be missing
// and is 0 then.
func transposePairs(dst []float32, src []uint16, rows, n, lddst, ldsrc int) {
	words := n / 2
	if rows < 4 || words < 4 {
		transposePairsGeneric(dst, src, rows, n, lddst, ldsrc)
		return
	}
	_, _ = dst[(words-1)*lddst+rows-1], src[(rows-1)*ldsrc+n-1]
	transposeWords(&dst[0], (*byte)(unsafe.Pointer(&src[0])), rows, words, lddst, 2*ldsrc)
	if n%2 > 0 {
		transposePairsGeneric(dst[words*lddst:], src[n-1:], rows, 1, lddst, ldsrc)
	}
}
