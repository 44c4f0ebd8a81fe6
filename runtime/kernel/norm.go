package kernel

import "fmt"

// RMSNorm writes x / sqrt(mean(x²) + eps) * gamma to dst, for one row, computed in float64 and rounded once.
// dst may be x itself. It panics unless the three have the same length.
func RMSNorm(dst, x, gamma []float32, eps float32) { RMSNormRows(dst, x, gamma, 1, eps) }

// RMSNormRows is [RMSNorm] for each row of x [rows, len(gamma)].
func RMSNormRows(dst, x, gamma []float32, rows int, eps float32) {
	norm(exactNorm).rows("RMSNormRows", dst, x, gamma, rows, eps)
}

// AddRMSNormRows writes x + y to sum and [RMSNormRows] of sum to dst, a few rows at a time, so that a row is in the cache
// when it is read again. sum may be x or y, and dst may be any of the three.
func AddRMSNormRows(dst, sum, x, y, gamma []float32, rows int, eps float32) {
	norm(exactNorm).addRows("AddRMSNormRows", dst, sum, x, y, gamma, rows, eps)
}

// normChunk is how many rows are normalised together.
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

func (f norm) addRows(name string, dst, sum, x, y, gamma []float32, rows int, eps float32) {
	width := checkRows(name, dst, x, gamma, rows)
	checkThree(name, sum, x, y)
	for ; rows > 0 && width > 0; rows -= normChunk {
		n := min(rows, normChunk)
		add(sum[:n*width], x[:n*width], y[:n*width])
		f(dst[:n*width], sum[:n*width], gamma, n, eps)
		dst, sum, x, y = dst[n*width:], sum[n*width:], x[n*width:], y[n*width:]
	}
}

// checkRows returns the width of a row.
func checkRows(name string, dst, x, gamma []float32, rows int) int {
	if rows < 0 || len(x) != rows*len(gamma) || len(dst) != len(x) {
		panic(fmt.Sprintf("internal error: kernel.%s: lengths %d, %d, %d rows of %d", name, len(dst), len(x), rows, len(gamma)))
	}
	return len(gamma)
}
