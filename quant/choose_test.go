package quant

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// refinementOf is a refinement of rows that are encoded, before anything is refined.
func refinementOf(t *testing.T, s Spec, w Matrix, in, outputs *Stats, threads int) (r *refinement, first Blocks) {
	t.Helper()
	q := NewGPTQ()
	q.Candidates = 4
	e, err := q.Prepare(s, w.Cols, in, 1)
	if err != nil {
		t.Fatal(err)
	}
	first = encodeWith(t, q, w, s, in)
	if r, err = e.(*feedback).refinement(cloneBlocks(first), w, outputs, threads); err != nil || !r.coupled || !r.definite {
		t.Fatalf("%v, or no output matters, or the moments are not positive definite", err)
	}
	return r, first
}

// Codes that are chosen row after row are far better together than those of rows by themselves, even after sweeps of these.
func TestChoose(t *testing.T) {
	const rows, cols = 96, 256
	outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, 512, 9)}
	in, w := statsOf(cols, 512), gaussian(rows, cols, 5)
	for _, s := range []Spec{{Bits: 3, Block: 64, Scale: tensor.F16}, {Bits: 4, Block: 128, Symmetric: true, Scale: tensor.F32}, {Bits: 2, Scale: tensor.F16}} {
		r, first := refinementOf(t, s, w, in, outputs, 2)
		if r.needsCodes() {
			r.restore(first)
		}
		if err := r.choose(); err != nil {
			t.Fatal(err)
		}
		h := damped(in.Hessian, cols, r.ridge)
		before, after := coupled(first, w, s, h, outputs.Hessian, 1), coupled(r.dst, w, s, h, outputs.Hessian, 1)
		t.Logf("%s: %.3g, was %.3g", s, after, before)
		if !(after < .9*before) {
			t.Errorf("%s: objective %g, was %g", s, after, before)
		}
	}
}

// Where numbers leave the range of float32 rows are encoded by themselves.
func TestChooseOutgrown(t *testing.T) {
	const rows, cols = 16, 128
	outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, 512, 9)}
	r, first := refinementOf(t, Spec{Bits: 3, Block: 64, Scale: tensor.F32}, gaussian(rows, cols, 5), statsOf(cols, 512), outputs, 1)
	r.target[0] = float32(math.Inf(1))
	if err := r.choose(); err != nil || !sameBlocks(first, r.dst) {
		t.Errorf("blocks are not those of rows by themselves, %v", err)
	}
}

// What is chosen does not depend on what was there, and is what follows from the codes of rows by themselves: all of it where moments of
// outputs are not positive definite, and the grids of blocks for which the search has none.
func TestChooseFresh(t *testing.T) {
	const rows, cols = 20, 128
	s, w, in := Spec{Bits: 4, Block: 64, Scale: tensor.F32}, gaussian(rows, cols, 5), statsOf(cols, 512)
	for j := range cols {
		w.Data[3*cols+j] = float32(j%64) * 0x1p-125 // a scale that rounding stores, but no search
	}
	coupled := hessian(rows, 512, 9)
	alone, indefinite := make([]float32, rows*rows), slices.Repeat([]float32{-1}, rows*rows)
	for i := range rows {
		alone[i*rows+i] = 1 + float32(i)
		indefinite[i*rows+i] = 1
	}
	for _, c := range []struct {
		name              string
		outputs           []float32
		definite, lacking bool
	}{{"coupled", coupled, true, false}, {"alone", alone, true, true}, {"indefinite", indefinite, false, true}} {
		outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: c.outputs}
		q := NewGPTQ()
		q.Candidates = 4
		e, err := q.Prepare(s, cols, in, 1)
		if err != nil {
			t.Fatal(err)
		}
		f, first := e.(*feedback), encodeWith(t, q, w, s, in)
		// Everything after rows have been encoded by themselves.
		r, err := f.refinement(cloneBlocks(first), w, outputs, 1)
		if err != nil || r.definite != c.definite {
			t.Fatalf("%s: %v, positive definite: %v", c.name, err, r.definite)
		}
		r.restore(first)
		if r.definite {
			if finite, lacking := r.chooseOnce(); !finite || lacking != c.lacking {
				t.Fatalf("%s: finite %v, a block lacks a grid %v", c.name, finite, lacking)
			}
		}
		r.mistake()
		r.run()
		l, _ := s.Layout(rows, cols)
		got := NewBlocks(l, s)
		if err := f.Refine(got, w, outputs, 3); err != nil || !sameBlocks(got, r.dst) {
			t.Errorf("%s: %v, or other blocks", c.name, err)
		}
	}
	w.Data[5*cols+1] = float32(math.NaN())
	for _, outputs := range [][]float32{coupled, make([]float32, rows*rows)} {
		e, err := NewGPTQ().Prepare(s, cols, in, 1)
		if err != nil {
			t.Fatal(err)
		}
		l, _ := s.Layout(rows, cols)
		err = e.(Refiner).Refine(NewBlocks(l, s), w, &Stats{Cols: rows, Tokens: 1 << 20, Hessian: outputs}, 2)
		if !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "row 5") {
			t.Errorf("a weight that is no number: %v", err)
		}
	}
}

// The change of a target is what multiplied by the damped Hessian gives half of the residue, and in the same direction if that is too far.
func TestAim(t *testing.T) {
	const rows, cols, small = 70, 192, 0.05
	in, w, residue := statsOf(cols, 512), gaussian(rows, cols, 5), gaussian(rows, cols, 6)
	large := slices.Clone(residue.Data)
	kernel.Scale(residue.Data, residue.Data, small)
	for _, order := range []string{OrderGroup, OrderNatural} {
		q := NewGPTQ()
		q.Order = order
		e, err := q.Prepare(Spec{Bits: 3, Block: 64, Scale: tensor.F16}, cols, in, 1)
		if err != nil {
			t.Fatal(err)
		}
		to := e.(Aimer).Aim(w, residue.Data, 3)
		h := damped(in.Hessian, cols, ridgeOf(e))
		for i := range rows {
			for j := range cols {
				var got float64
				for k := range cols {
					got += (float64(to.Row(i)[k]) - float64(w.Row(i)[k])) * float64(h[k*cols+j])
				}
				if want := q.Mismatch * float64(residue.Row(i)[j]); math.Abs(got-want) > 1e-3*small {
					t.Fatalf("%s [%d,%d]: %g, want %g", order, i, j, got, want)
				}
			}
		}
		for n := range partly(3) {
			d := n
			kernel.SetDevice(&d)
			if got := e.(Aimer).Aim(w, residue.Data, 3); d != 0 || !slices.Equal(got.Data, to.Data) {
				t.Errorf("%s: %d products on a device, %d are left, or another target", order, n, d)
			}
			kernel.SetDevice(nil)
		}
		far := e.(Aimer).Aim(w, large, 3)
		var change, squares, along, whole float64
		for i, v := range w.Data {
			d, near := float64(far.Data[i])-float64(v), float64(to.Data[i])-float64(v)
			change += d * d
			squares += near * near
			along += d * near
			whole += float64(v) * float64(v) * float64(in.Hessian[i%cols*(cols+1)])
		}
		if cosine := along / math.Sqrt(change*squares); cosine < 1-1e-6 || change > squares/(small*small)/10 {
			t.Errorf("%s: a large change is cut to %g of %g, with a cosine of %g", order, change, squares/(small*small), cosine)
		}
		var moved float64
		for i := range rows {
			for j := range cols {
				moved += q.Mismatch * (float64(far.Row(i)[j]) - float64(w.Row(i)[j])) * float64(large[i*cols+j])
			}
		}
		if limit := moved * math.Sqrt(change/(squares/(small*small))); math.Abs(limit-aimMost*whole) > 1e-3*aimMost*whole {
			t.Errorf("%s: the outputs change by %g of %g", order, limit, whole)
		}
	}
}
