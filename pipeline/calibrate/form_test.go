package calibrate

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// someProducts is a device that computes so many products and refuses the others.
type someProducts int

func (d *someProducts) Compute(w kernel.Work) bool {
	p, ok := w.(*kernel.Product)
	if !ok || *d == 0 {
		return false
	}
	*d--
	a, b := p.Parts[0].A, p.Parts[0].B
	kernel.MatMul(p.Dst, a.Data, b.Data, p.Rows, p.Cols, p.Parts[0].K, p.Stride, a.Stride, b.Stride)
	return true
}

func (*someProducts) Settle([]float32) error { return nil }

func (*someProducts) Forget(*kernel.Pasts) {}

// TestFormDevice: a device that computes all, some or none of the products changes no bit.
func TestFormDevice(t *testing.T) {
	const rows, cols = 2*deviceRows + 70, 260
	r := rand.New(rand.NewPCG(1, 1))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = r.Float32() - 0.5
		}
		return x
	}
	a, b, h := random(rows*cols), random(rows*cols), &quant.Stats{Cols: cols, Hessian: random(cols * cols)}
	defer kernel.SetDevice(nil)
	for _, b := range [][]float32{nil, b} {
		kernel.SetDevice(nil)
		want := formParts(a, b, rows, cols, h, 2)
		for _, n := range []someProducts{0, 1, 3} {
			d := n
			kernel.SetDevice(&d)
			if got := formParts(a, b, rows, cols, h, 2); d != 0 || !slices.Equal(got, want) {
				t.Errorf("%d products on a device: %d are left, or sums differ", n, d)
			}
		}
	}
}
