package quanttest

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/llmexport/llmexport/quant"
)

const (
	cols = 128
	// rows of the ordinary matrix: no multiple of a usual cut.
	rows   = 13
	tokens = 300
)

// noise gives numbers that are the same on every machine: sums of four uniform ones, from an integer hash.
type noise uint64

// next has mean 0 and variance 1.
func (n *noise) next() float32 {
	*n++
	h := uint64(*n) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	sum := 0
	for range 4 {
		sum += int(h & 0xffff)
		h = bits.RotateLeft64(h, 16)
	}
	return float32(sum-2*0xffff) * float32(1/37837.0)
}

func (n *noise) matrix(rows, cols int) quant.Matrix {
	m := quant.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = n.next()
	}
	return m
}

// layer returns an ordinary matrix with statistics of its inputs.
func layer() (quant.Matrix, *quant.Stats) {
	w, in := made()
	w.Data = slices.Clone(w.Data)
	return w, &quant.Stats{Cols: in.Cols, Tokens: in.Tokens, Hessian: slices.Clone(in.Hessian)}
}

var made = sync.OnceValues(func() (quant.Matrix, *quant.Stats) {
	n := noise(1)
	w, x := n.matrix(rows, cols), n.matrix(tokens, cols)
	for t := range tokens {
		row := x.Row(t)
		for j := 1; j < cols; j++ { // neighbours are alike
			row[j] = float32(0.6*row[j-1]) + float32(0.8*row[j])
		}
		for j := 5; j < cols; j += 64 { // some channels stand out, and are read with smaller weights
			row[j] *= 30
		}
	}
	for r := range rows {
		for j := 5; j < cols; j += 64 {
			w.Row(r)[j] /= 30
		}
	}
	return w, stats(x, nil)
})

// stats are those of the rows of x, but for columns that dead lists, which are always 0.
func stats(x quant.Matrix, dead []int) *quant.Stats {
	n := x.Cols
	s := &quant.Stats{Cols: n, Tokens: int64(x.Rows), Hessian: make([]float32, n*n)}
	for i := range n {
		for j := range i + 1 {
			var sum float64
			for t := range x.Rows {
				sum += float64(x.Row(t)[i]) * float64(x.Row(t)[j]) // exact, so that fusing changes nothing
			}
			if slices.Contains(dead, i) || slices.Contains(dead, j) {
				sum = 0
			}
			s.Hessian[i*n+j] = float32(sum / float64(x.Rows))
			s.Hessian[j*n+i] = s.Hessian[i*n+j]
		}
	}
	return s
}

// hard are rows with all that is hard about a block, by name.
func hard() map[string][]float32 {
	n := noise(3)
	fill := func(f func(i int) float64) []float32 {
		row := make([]float32, cols)
		for i := range row {
			row[i] = float32(f(i))
		}
		return row
	}
	normal := func(scale float64) []float32 {
		return fill(func(int) float64 { return scale * float64(n.next()) })
	}
	return map[string][]float32{
		"normal":            normal(0.02),
		"heavy tails":       fill(func(int) float64 { return float64(n.next()) / max(1e-2, math.Abs(float64(n.next()))) }),
		"tiny":              normal(1e-8),
		"tinier":            normal(1e-20),
		"subnormal":         normal(1e-41),
		"half subnormal":    normal(3e-6),
		"huge":              fill(func(int) float64 { return 2e4 * math.Mod(float64(n.next()), 1.5) }),
		"positive":          fill(func(int) float64 { return 5 + math.Mod(float64(n.next()), 1) }),
		"negative":          fill(func(int) float64 { return -5 + math.Mod(float64(n.next()), 1) }),
		"zero":              make([]float32, cols),
		"negative zero":     fill(func(int) float64 { return math.Copysign(0, -1) }),
		"constant":          fill(func(int) float64 { return 0.1 }),
		"huge constant":     fill(func(int) float64 { return -6e4 }),
		"tiny constant":     fill(func(int) float64 { return 1e-9 }),
		"off centre":        fill(func(int) float64 { return 100 + 0.005*math.Mod(float64(n.next()), 1) }),
		"an ulp apart":      fill(func(i int) float64 { return 60000 + float64(i%2)*0x1p-8 }),
		"positive outlier":  fill(func(i int) float64 { return 0.001*float64(n.next()) + 50*float64(1-min(i, 1)) }),
		"negative outlier":  fill(func(i int) float64 { return 0.001*float64(n.next()) - 50*float64(1-min(i, 1)) }),
		"outlier of zeros":  fill(func(i int) float64 { return -float64(1 - min(i, 1)) }),
		"two values":        fill(func(i int) float64 { return float64(1 - 2*(i%2)) }),
		"smallest non-zero": fill(func(i int) float64 { return math.SmallestNonzeroFloat32 * float64(i%2) }),
	}
}
