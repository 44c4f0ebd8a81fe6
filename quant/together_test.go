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

// partly is a device that does so many pieces of work, and refuses the others.
type partly int

func (d *partly) Compute(w kernel.Work) bool {
	if *d == 0 {
		return false
	}
	*d--
	switch w := w.(type) {
	case *kernel.Product:
		multiply(w)
	case *kernel.Feedback:
		return Feed(w)
	case *kernel.Feedbacks: // of two, it leaves one
		for i, f := range w.Of {
			w.Left[i] = i%2 == 1 || !Feed(f)
		}
	case *kernel.Descent:
		Descend(w)
	}
	return true
}

// multiply computes a product of one part as a device does.
func multiply(p *kernel.Product) {
	a, b, k := p.Parts[0].A, p.Parts[0].B, p.Parts[0].K
	for j := 0; j < p.Cols; j += kernel.ReachColumns {
		from, to, n := 0, k, min(kernel.ReachColumns, p.Cols-j)
		switch p.Parts[0].Reach {
		case kernel.Until:
			to = j + n
		case kernel.From:
			from = j
		}
		if b.Layout == kernel.ByRow {
			kernel.MatMulT(p.Dst[j:], a.Data[from:], b.Data[j*b.Stride+from:], p.Rows, n, to-from, p.Stride, a.Stride, b.Stride)
		} else {
			kernel.MatMul(p.Dst[j:], a.Data[from:], b.Data[from*b.Stride+j:], p.Rows, n, to-from, p.Stride, a.Stride, b.Stride)
		}
	}
}

func (*partly) Settle([]float32) error { return nil }
func (*partly) Forget(*kernel.Pasts)   {}
func (*partly) Room() int64            { return 0 }

// Rows that are encoded together are encoded as rows by themselves, whatever a device does of it.
func TestEncodeTogether(t *testing.T) {
	const rows, cols = 2*togetherRows + 5, 96
	in, w := statsOf(cols, 256), gaussian(rows, cols, 5)
	x := inputs(cols, 256, 3)
	y := inputs(cols, 256, 4)
	in.Cross = moment(x, y, cols, 256)
	defer kernel.SetDevice(nil)
	for _, s := range []Spec{{4, 32, false, tensor.F16}, {3, WholeRow, true, tensor.F32}} {
		kernel.SetDevice(nil)
		e, err := NewGPTQ().Prepare(s, cols, in, 1)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Layout(rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		want := NewBlocks(l, s)
		if err := e.Encode(want, w); err != nil {
			t.Fatal(err)
		}
		for n := range partly(4) {
			d, got := n, NewBlocks(l, s)
			kernel.SetDevice(&d)
			if err := e.(Together).EncodeTogether(got, w, 2); err != nil || d != 0 || !sameBlocks(got, want) {
				t.Errorf("%v, %d pieces of work on a device: %v, %d are left, or codes or scales differ", s, n, err, d)
			}
		}
		bad := Matrix{rows, cols, slices.Clone(w.Data)}
		bad.Data[(togetherRows+3)*cols+7] = float32(math.NaN())
		err = e.(Together).EncodeTogether(NewBlocks(l, s), bad, 2)
		if !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "rows 64 to 127: row 3") {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// Encoders that encode a matrix at the same time give what each gives by itself, whatever a device does of it, and each has its error.
func TestEncodeEach(t *testing.T) {
	const rows, cols = togetherRows + 5, 96
	in, w := statsOf(cols, 256), gaussian(rows, cols, 5)
	in.Cross = moment(inputs(cols, 256, 3), inputs(cols, 256, 4), cols, 256)
	bad := Matrix{rows, cols, slices.Clone(w.Data)}
	bad.Data[3*cols+7] = 1e30
	quick := NewGPTQ().Quick()
	specs := []Spec{{4, 32, false, tensor.F16}, {3, WholeRow, true, tensor.F32}, {2, 32, false, tensor.F32}, {4, 32, false, tensor.F32}, {8, 32, true, tensor.F16}}
	var encoders []Encoder
	var dst, want []Blocks
	for i, s := range specs {
		for _, q := range []Quantizer{NewGPTQ(), quick, NewSearch()} {
			e, err := q.Prepare(s, cols, in, 1)
			if err != nil {
				t.Fatal(i, err)
			}
			l, err := s.Layout(rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			encoders, dst, want = append(encoders, e), append(dst, NewBlocks(l, s)), append(want, NewBlocks(l, s))
			if err := e.Encode(want[len(want)-1], w); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer kernel.SetDevice(nil)
	for _, n := range []partly{0, 10, 11, 100} { // targets, feedbacks, descents
		for i := range dst {
			clear(dst[i].Codes)
			clear(dst[i].Scale)
			clear(dst[i].Zero)
		}
		d := n
		kernel.SetDevice(&d)
		failed := EncodeEach(encoders, dst, w, 1)
		if left := max(0, n-10-1-10); d != left {
			t.Errorf("%d pieces of work on a device: %d are left, want %d", n, d, left)
		}
		for i, err := range failed {
			if s := specs[i/3]; err != nil || !sameBlocks(dst[i], want[i]) {
				t.Errorf("%d pieces of work on a device, %v, encoder %d: %v, or codes or scales differ", n, s, i, err)
			}
		}
		for i, err := range EncodeEach(encoders, dst, bad, 1) {
			if half := specs[i/3].Scale == tensor.F16; half != errors.Is(err, tensor.ErrUnsupported) {
				t.Errorf("%v, encoder %d: %v", specs[i/3], i, err)
			}
		}
	}
}
