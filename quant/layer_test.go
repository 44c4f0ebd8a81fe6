package quant

import (
	"math/bits"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// noise gives numbers that are the same on every machine: sums of four uniform ones, from an integer hash.
type noise uint64

// next has mean 0 and variance 1.
func (n *noise) next() float32 {
	*n++
	h := mix(uint64(*n))
	sum := 0
	for range 4 {
		sum += int(h & 0xffff)
		h = bits.RotateLeft64(h, 16)
	}
	return float32(sum-2*0xffff) * float32(1/37837.0)
}

func (n *noise) matrix(rows, cols int) Matrix {
	m := Matrix{rows, cols, make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = n.next()
	}
	return m
}

// testLayer is inputs of cols channels with correlations and a few outliers, as statistics, and weights that undo the
// outliers: a channel that is thirty times as large is read with a thirtieth of the weight.
func testLayer(rows, cols, tokens int) (Matrix, *Stats) {
	n := noise(1)
	w, x := n.matrix(rows, cols), n.matrix(tokens, cols)
	for t := range tokens {
		row := x.Row(t)
		for j := 1; j < cols; j++ {
			row[j] = float32(0.6*row[j-1]) + float32(0.8*row[j])
		}
		for j := 5; j < cols; j += 64 {
			row[j] *= 30
		}
	}
	for r := range rows {
		for j := 5; j < cols; j += 64 {
			w.Row(r)[j] /= 30
		}
	}
	s := &Stats{Cols: cols, Tokens: int64(tokens), Hessian: make([]float32, cols*cols)}
	var p kernel.Packed
	p.Resize(cols, tokens)
	p.PackColumns(x.Data, 0, cols, cols)
	p.Syrk(s.Hessian, x.Data, 0, cols, 0, cols, cols, cols)
	for i := range cols {
		for j := range i + 1 {
			v := s.Hessian[i*cols+j] / float32(tokens)
			s.Hessian[i*cols+j], s.Hessian[j*cols+i] = v, v
		}
	}
	return w, s
}

func testSite(s Spec) *Site {
	w, in := testLayer(96, 128, 1024)
	return &Site{Name: "test", Channels: w.Cols, Consumers: []Matrix{w}, Specs: []Spec{s}, Stats: in}
}

// lossOf is tr(dW H dWᵀ) of an encoded matrix, relative to tr(W H Wᵀ), with damping added to the Hessian.
func lossOf(b Blocks, w Matrix, s Spec, in *Stats, damping float64) float64 {
	l, _ := s.Layout(w.Rows, w.Cols)
	diff := make([]float32, len(w.Data))
	b.errors(diff, w, l, s)
	return form(diff, w, in, damping) / form(w.Data, w, in, damping)
}

// form is tr(X H Xᵀ), in float64.
func form(x []float32, w Matrix, in *Stats, damping float64) float64 {
	n := w.Cols
	var trace, sum float64
	for _, v := range in.Diagonal() {
		trace += float64(v)
	}
	for r := range w.Rows {
		row := x[r*n : (r+1)*n]
		for i, a := range row {
			for j, b := range row {
				sum += float64(a) * float64(b) * float64(in.Hessian[i*n+j])
			}
			sum += float64(a) * float64(a) * damping * trace / float64(n)
		}
	}
	return sum
}
