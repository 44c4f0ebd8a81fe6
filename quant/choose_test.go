package quant

import (
	"math"
	"slices"
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
	f := e.(*feedback)
	r = &refinement{feedback: f, dst: cloneBlocks(first), rows: w.Rows, width: min(f.block, descentPanel), threads: threads}
	if !r.couple(outputs) {
		t.Fatal("no output matters")
	}
	r.point(w)
	return r, first
}

// Codes that are chosen row after row are far better together than those of rows by themselves, even after sweeps of these.
func TestChoose(t *testing.T) {
	const rows, cols = 96, 256
	outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, 512, 9)}
	in, w := statsOf(cols, 512), gaussian(rows, cols, 5)
	for _, s := range []Spec{{Bits: 3, Block: 64, Scale: tensor.F16}, {Bits: 4, Block: 128, Symmetric: true, Scale: tensor.F32}, {Bits: 2, Scale: tensor.F16}} {
		r, first := refinementOf(t, s, w, in, outputs, 2)
		r.choose()
		h := damped(in.Hessian, cols, r.ridge)
		before, after := coupled(first, w, s, h, outputs.Hessian, 1), coupled(r.dst, w, s, h, outputs.Hessian, 1)
		t.Logf("%s: %.3g, was %.3g", s, after, before)
		if !(after < .9*before) {
			t.Errorf("%s: objective %g, was %g", s, after, before)
		}
	}
}

// Numbers that leave the range of float32 change nothing.
func TestChooseOutgrown(t *testing.T) {
	const rows, cols = 16, 128
	outputs := &Stats{Cols: rows, Tokens: 1 << 20, Hessian: hessian(rows, 512, 9)}
	r, first := refinementOf(t, Spec{Bits: 3, Block: 64, Scale: tensor.F32}, gaussian(rows, cols, 5), statsOf(cols, 512), outputs, 1)
	r.target[0] = float32(math.Inf(1))
	r.choose()
	if !sameBlocks(first, r.dst) {
		t.Error("blocks have changed")
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
