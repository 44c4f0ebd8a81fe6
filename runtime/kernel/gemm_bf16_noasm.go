//go:build !amd64 || purego

package kernel

func transposePairs(dst []float32, src []uint16, rows, n, lddst, ldsrc int) {
	transposePairsGeneric(dst, src, rows, n, lddst, ldsrc)
}

// f32ToBF16 converts the first values and returns their number.
func f32ToBF16([]uint16, []float32) int { return 0 }

// widen does so in the other direction.
func widen([]float32, []uint16) int { return 0 }
