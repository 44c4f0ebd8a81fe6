//go:build !amd64 || purego

package kernel

func transposePairs(dst []float32, src []uint16, rows, n, lddst, ldsrc int) {
	transposePairsGeneric(dst, src, rows, n, lddst, ldsrc)
}
