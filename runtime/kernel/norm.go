package kernel

import (
	"fmt"
	"math"
)

// RMSNorm writes x / sqrt(mean(x²) + eps) * gamma to dst, for one row, computed in float64 and rounded once.
// dst may be x itself. It panics unless the three have the same length.
func RMSNorm(dst, x, gamma []float32, eps float32) { RMSNormRows(dst, x, gamma, 1, eps) }

// RMSNormRows is [RMSNorm] for each row of x [rows, len(gamma)].
func RMSNormRows(dst, x, gamma []float32, rows int, eps float32) {
	norm(exactNorm).rows("RMSNormRows", dst, x, gamma, rows, eps)
}

// RMSNormBack turns dy, the gradient of [RMSNorm] of a row x, into that of x, in place, and adds the row's part of the gradient of gamma to sum.
// With r = 1/sqrt(mean(x²) + eps) and g = gamma dy, dx = r (g - x r² mean(g x)) and that part is r x dy, in float64; sums over the row have four
// lanes. It panics unless all have the same length.
func RMSNormBack(sum []float64, x, dy, gamma []float32, eps float32) {
	if len(sum) != len(gamma) || len(x) != len(gamma) || len(dy) != len(gamma) {
		panic("internal error: kernel.RMSNormBack: lengths differ")
	}
	x, dy, sum = x[:len(gamma)], dy[:len(gamma)], sum[:len(gamma)]
	var squares, dots [4]float64
	i := 0
	for ; i+4 <= len(gamma); i += 4 {
		a, b, c, d := float64(x[i]), float64(x[i+1]), float64(x[i+2]), float64(x[i+3])
		squares[0] += float64(a * a)
		squares[1] += float64(b * b)
		squares[2] += float64(c * c)
		squares[3] += float64(d * d)
		dots[0] += float64(float64(gamma[i]*dy[i]) * a)
		dots[1] += float64(float64(gamma[i+1]*dy[i+1]) * b)
		dots[2] += float64(float64(gamma[i+2]*dy[i+2]) * c)
		dots[3] += float64(float64(gamma[i+3]*dy[i+3]) * d)
	}
	for ; i < len(gamma); i++ {
		a := float64(x[i])
		squares[0] += float64(a * a)
		dots[0] += float64(float64(gamma[i]*dy[i]) * a)
	}
	mean := (squares[0] + squares[1] + squares[2] + squares[3]) / float64(len(gamma))
	dot := (dots[0] + dots[1] + dots[2] + dots[3]) / float64(len(gamma))
	r := 1 / math.Sqrt(mean+float64(eps))
	c := dot * r * r
	for i, g := range gamma {
		a, d := float64(x[i]), dy[i]
		sum[i] += float64(a * r * float64(d))
		dy[i] = float32(r * (float64(g*d) - float64(a*c)))
	}
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
