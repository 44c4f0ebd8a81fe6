package quant

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// several is a device for goroutines.
type several struct {
	partly
	sync.Mutex
}

func (d *several) Compute(w kernel.Work) bool {
	d.Lock()
	defer d.Unlock()
	if d.partly > 0 {
		switch w := w.(type) {
		case *kernel.Choice:
			d.partly--
			Choose(w, 1)
			return true
		case *kernel.Refinement:
			d.partly--
			Refine(w, 1)
			return true
		}
	}
	return d.partly.Compute(w)
}

// multiplier is a device that computes the products of refinements whose rows move here.
type multiplier struct{ refined atomic.Int32 }

func (d *multiplier) Compute(w kernel.Work) bool {
	r, ok := w.(*kernel.Refinement)
	if !ok || r.Block > descentPanel {
		return false
	}
	for _, run := range r.Runs {
		d.refine(r, run)
		d.refined.Add(1)
	}
	return true
}

func (*multiplier) Settle([]float32) error { return nil }
func (*multiplier) Forget(*kernel.Pasts)   {}
func (*multiplier) Room() int64            { return 0 }

// refine computes what moves of a run need, and what follows from them.
func (d *multiplier) refine(r *kernel.Refinement, run kernel.Run) {
	m, n, width := run.Rows, r.Cols, r.Block
	pulled := make([]float32, m*n)
	gradients, changes, others, spread := make([]float32, m*width), make([]float32, m*width), make([]float32, m*width), make([]float32, m*width)
	kernel.MatMul(pulled, run.Outputs, run.Errors, m, n, m, n, m, n)
	for moved, sweep := true, 0; moved && sweep < r.Sweeps; sweep++ {
		moved = false
		for lo := 0; lo < n; lo += width {
			run.Moves.Begin(lo, changes)
			kernel.MatMul(gradients, pulled, r.Hessian.Data[lo:], m, width, n, width, n, n)
			for i := range m {
				kernel.AddScaled(gradients[i*width:(i+1)*width], pulled[i*n+lo:][:width], r.Ridge)
			}
			next := (lo + width) % n
			if next == 0 && sweep+1 == r.Sweeps {
				next = -1
			}
			some := run.Moves.Move(gradients, next, others)
			if changes, others = others, changes; !some {
				continue
			}
			moved = true
			kernel.MatMul(spread, run.Outputs, others, m, width, m, width, m, width)
			for i := range m {
				kernel.Add(pulled[i*n+lo:][:width], pulled[i*n+lo:][:width], spread[i*width:(i+1)*width])
			}
		}
	}
}

// Runs that are refined together are refined as each by itself, whatever a device does of it.
func TestRefineTogether(t *testing.T) {
	lengths := []int{40, 33, 8}
	defer kernel.SetDevice(nil)
	for _, s := range []Spec{{4, 32, false, tensor.F16}, {3, WholeRow, true, tensor.F32}} {
		kernel.SetDevice(nil)
		cols := 64
		if s.Block == WholeRow {
			cols = descentPanel + 32 // grids are those of rows by themselves
		}
		in := statsOf(cols, 256)
		in.Cross = moment(inputs(cols, 256, 3), inputs(cols, 256, 4), cols, 256)
		list := func() (list []Coupled, want []Blocks) {
			for i, rows := range lengths {
				e, err := NewGPTQ().Prepare(s, cols, in, 1)
				if err != nil {
					t.Fatal(err)
				}
				if i == 1 {
					e = list[0].Refiner
				}
				c := Coupled{Refiner: e.(Refiner), W: gaussian(rows, cols, uint64(i)), Outputs: &Stats{Cols: rows, Tokens: 1000, Hessian: hessian(rows, 256, 9)}}
				l, err := s.Layout(rows, cols)
				if err != nil {
					t.Fatal(err)
				}
				c.Dst = NewBlocks(l, s)
				if err := e.Encode(c.Dst, c.W); err != nil {
					t.Fatal(err)
				}
				first := cloneBlocks(c.Dst)
				if err := c.Refiner.Refine(c.Dst, c.W, c.Outputs, 1); err != nil {
					t.Fatal(err)
				}
				if sameBlocks(first, c.Dst) {
					t.Errorf("%v: nothing moves", s)
				}
				want = append(want, c.Dst)
				c.Dst = first
				list = append(list, c)
			}
			return list, want
		}
		for n := range partly(len(lengths) + 4 + 1) { // targets, and twice the work of two encoders; or some of that of rows by themselves
			runs, want := list()
			d := &several{partly: n}
			kernel.SetDevice(d)
			failed := RefineTogether(runs, 2)
			kernel.SetDevice(nil)
			for i, err := range failed {
				if err != nil || d.partly != 0 || !sameBlocks(runs[i].Dst, want[i]) {
					t.Errorf("%v, %d pieces of work on a device: %v, %d are left, or codes or scales of run %d differ", s, n, err, d.partly, i)
				}
			}
		}
		for _, threads := range []int{1, 2, 7} {
			runs, want := list()
			d := &multiplier{}
			kernel.SetDevice(d)
			failed := RefineTogether(runs, threads)
			kernel.SetDevice(nil)
			for i, err := range failed {
				if err != nil || !sameBlocks(runs[i].Dst, want[i]) || s.Block != WholeRow && int(d.refined.Load()) != len(runs) {
					t.Errorf("%v, %d threads, rows move here: %v, %d runs, or codes or scales of run %d differ", s, threads, err, d.refined.Load(), i)
				}
			}
		}
		runs, _ := list()
		runs[1].Outputs = runs[0].Outputs
		if failed := RefineTogether(runs, 2); failed[0] != nil || failed[1] == nil || failed[2] != nil {
			t.Errorf("%v: moments of other rows: %v", s, failed)
		}
	}
}
