package calibrate

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// someProducts is a device that computes so many products and refuses the others.
type someProducts int

func (d *someProducts) Compute(w kernel.Work) bool {
	p, ok := w.(*kernel.Product)
	if !ok || *d == 0 {
		return false
	}
	*d--
	multiply(p)
	return true
}

// multiply computes a product with a factor by position.
func multiply(p *kernel.Product) {
	a, b := p.Parts[0].A, p.Parts[0].B
	kernel.MatMul(p.Dst, a.Data, b.Data, p.Rows, p.Cols, p.Parts[0].K, p.Stride, a.Stride, b.Stride)
}

func (*someProducts) Settle([]float32) error { return nil }

func (*someProducts) Forget(*kernel.Pasts) {}
func (*someProducts) Room() int64          { return 0 }

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

// sampling is a device for the errors of samples. It notes the versions of the factors of products, and how many feedbacks it does at a time.
type sampling struct {
	mu       sync.Mutex
	versions map[uint64]int
	together []int
}

func (d *sampling) Compute(w kernel.Work) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch w := w.(type) {
	case *kernel.Product:
		d.versions[w.Parts[0].B.Version]++
		multiply(w)
		return true
	case *kernel.Feedbacks:
		d.together = append(d.together, len(w.Of))
		for i, f := range w.Of {
			w.Left[i] = !quant.Feed(f)
		}
		return true
	}
	return false
}

func (*sampling) Settle([]float32) error { return nil }

func (*sampling) Forget(*kernel.Pasts) {}
func (*sampling) Room() int64          { return 0 }

// TestErrorsDevice: a device is given all specs of a sample at a time and names the Hessian once for all samples of an input, and the errors
// have the bits of the CPU.
func TestErrorsDevice(t *testing.T) {
	const rows, cols, tokens = 40, 192, 300
	r := rand.New(rand.NewPCG(2, 1))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	m := newInputMoments(cols, false)
	m.add(random(tokens*cols), nil, tokens, 0, 2)
	st, err := m.stats(2)
	check(t, err)
	var specs []quant.Spec
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, block := range []int{32, 64, quant.WholeRow} {
			specs = append(specs, quant.Spec{Bits: bits, Block: block, Scale: tensor.F16})
		}
	}
	specs = append(specs, quant.Spec{Bits: 16})
	all := []quant.Matrix{{Rows: rows, Cols: cols, Data: random(rows * cols)}, {Rows: 8, Cols: cols, Data: random(8 * cols)}}
	defer kernel.SetDevice(nil)
	for _, q := range []quant.Quantizer{quant.NewGPTQ().Quick(), quant.NewGPTQ(), quant.NewSearch()} {
		errorsOf := func(d kernel.Device) (list []float64) {
			kernel.SetDevice(d)
			e := &encoders{quantizer: q, threads: 2, stats: st, of: map[quant.Spec]quant.Encoder{}}
			for _, w := range all {
				values, err := e.errors(w, specs, func(rows []float64) (sum float64) {
					for i, v := range rows {
						sum += float64(float64(i+1) * v)
					}
					return sum
				})
				check(t, err)
				list = append(list, values...)
			}
			return list
		}
		want := errorsOf(nil)
		d := &sampling{versions: map[uint64]int{}}
		if got := errorsOf(d); !slices.Equal(got, want) {
			t.Errorf("%s: errors differ with a device", q.Name())
		}
		feedbacks := []int{len(specs) - 1, len(specs) - 1}
		if q.Name() == "search" {
			feedbacks = nil
		}
		if d.versions[st.Version] != 2 || len(d.versions) != 1 || !slices.Equal(d.together, feedbacks) {
			t.Errorf("%s: products by version %v, the Hessian has %d, feedbacks at a time %v", q.Name(), d.versions, st.Version, d.together)
		}
		bad := quant.Matrix{Rows: 1, Cols: cols, Data: slices.Repeat([]float32{float32(math.NaN())}, cols)}
		for _, d := range []kernel.Device{nil, d} {
			kernel.SetDevice(d)
			e := &encoders{quantizer: q, threads: 2, stats: st, of: map[quant.Spec]quant.Encoder{}}
			_, err := e.errors(bad, specs, func([]float64) float64 { return 0 })
			if !errors.Is(err, tensor.ErrCorrupt) || !strings.HasPrefix(err.Error(), specs[0].String()) {
				t.Errorf("%s: a weight that is no number: %v", q.Name(), err)
			}
		}
	}
}
