package kernel

import "fmt"

// RMSNorm writes x / sqrt(mean(x²) + eps) * gamma to dst, for one row, computed in float64 and rounded once.
// dst may be x itself. It panics unless the three have the same length.
func RMSNorm(dst, x, gamma []float32, eps float32) { RMSNormRows(dst, x, gamma, 1, eps) }

// RMSNormRows is [RMSNorm] for each row of x [rows, len(gamma)].
func RMSNormRows(dst, x, gamma []float32, rows int, eps float32) {
	norm(exactNorm).rows("RMSNormRows", dst, x, gamma, rows, eps)
}

// normChunk is the number of rows that are normalized together.
const normChunk = 16

// norm computes a kind of norm for up to normChunk rows of len(gamma) > 0 elements.
type norm func(dst, x, gamma []float32, rows int, eps float32)

func (f norm) rows(name string, dst, x, gamma []float32, rows int, eps float32) {
	width := checkRows(name, dst, x, gamma, rows)
	for ; rows > 0 && width > 0; rows -= normChunk {
		n := min(rows, normChunk)
		f(dst[:n*width], x[:n*width], gamma, n, eps)
		dst, x = dst[n*width:], x[n*width:]
	}
}

// checkRows returns the width of a row.
func checkRows(name string, dst, x, gamma []float32, rows int) int {
	if rows < 0 || len(x) != rows*len(gamma) || len(dst) != len(x) {
		panic(fmt.Sprintf("internal error: kernel.%s: lengths %d, %d, %d rows of %d", name, len(dst), len(x), rows, len(gamma)))
	}
	return len(gamma)
}
