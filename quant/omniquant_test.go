package quant

import (
	"errors"
	"math"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func omniquant(t testing.TB, o *OmniQuant, w Matrix, s Spec, in *Stats, threads int) Blocks {
	t.Helper()
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		t.Fatal(err)
	}
	e, err := o.Prepare(s, w.Cols, in, threads)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBlocks(l, s)
	if err := e.Encode(b, w); err != nil {
		t.Fatal(err)
	}
	return b
}

// No row is worse than the weighted search left it, by the damped Hessian, and together they are better by a stated
// part.
func TestClippingBeatsSearch(t *testing.T) {
	w, in := testLayer(24, 128, 1024)
	search := NewSearch()
	search.Importance = ImportanceHessian
	for _, c := range []struct {
		spec Spec
		most float64 // of the search's loss; what was seen is half a percent lower or more
	}{
		{Spec{4, 64, false, tensor.F16}, 0.99},
		{Spec{3, 32, false, tensor.F16}, 0.99},
		{Spec{2, 64, false, tensor.F16}, 0.98},
		{Spec{2, WholeRow, false, tensor.F32}, 0.985},
		{Spec{4, 64, true, tensor.F16}, 0.97},
		{Spec{3, 32, true, tensor.F32}, 0.98},
		{Spec{2, 64, true, tensor.F16}, 0.99},
		{Spec{8, 64, false, tensor.F16}, 1},
	} {
		t.Run(c.spec.String(), func(t *testing.T) {
			o := NewOmniQuant()
			got := omniquant(t, o, w, c.spec, in, 1)
			l, _ := c.spec.Layout(w.Rows, w.Cols)
			want := NewBlocks(l, c.spec)
			if err := Encode(search, want, w, c.spec, in); err != nil {
				t.Fatal(err)
			}
			for r := range w.Rows {
				row := Matrix{1, w.Cols, w.Row(r)}
				a := lossOf(rowOf(got, r, l), row, c.spec, in, o.Damping)
				b := lossOf(rowOf(want, r, l), row, c.spec, in, o.Damping)
				if a > b*(1+1e-5) { // the encoder sums in float32
					t.Errorf("row %d: %g, the search has %g", r, a, b)
				}
			}
			r := lossOf(got, w, c.spec, in, o.Damping) / lossOf(want, w, c.spec, in, o.Damping)
			t.Logf("%.3f of the search's loss", r)
			if r > c.most {
				t.Errorf("%.3f of the search's loss, want at most %g", r, c.most)
			}
			for i, v := range append(append([]float32(nil), got.Scale...), got.Zero...) {
				if float32(c.spec.round(float64(v))) != v {
					t.Fatalf("term %d, %g, is not of its type", i, v)
				}
			}
		})
	}
}

func rowOf(b Blocks, r int, l Layout) Blocks {
	row := Blocks{Codes: b.Codes[r*l.Cols : (r+1)*l.Cols], Scale: b.Scale[r*l.Blocks : (r+1)*l.Blocks]}
	if b.Zero != nil {
		row.Zero = b.Zero[r*l.Blocks : (r+1)*l.Blocks]
	}
	return row
}

func TestClippingRefuses(t *testing.T) {
	_, in := testLayer(3, 128, 512)
	s := Spec{4, 32, false, tensor.F16}
	in.Hessian[3] = float32(math.Inf(1))
	if _, err := NewOmniQuant().Prepare(s, 128, in, 1); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("statistics: %v", err)
	}
}

// Statistics that are all zero leave what the search found.
func TestClippingWithoutInputs(t *testing.T) {
	w, in := testLayer(3, 128, 512)
	clear(in.Hessian)
	s := Spec{4, 32, false, tensor.F16}
	o := NewOmniQuant()
	o.Steps = 3
	omniquant(t, o, w, s, in, 1)
}
