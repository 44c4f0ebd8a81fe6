package forward

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Matrices are kept within the bound, whatever it is, and the others are read again for the same bits.
func TestKeep(t *testing.T) {
	m := openModel(t, tinyDir, 2)
	windows := [][]int32{{5, 17, 300}}
	want := scoreAll(t, m, windows)[0]
	all := m.Weights().All
	for _, room := range []int64{0, 1, 1 << 20, 9 << 20, all} {
		m := openModel(t, tinyDir, 2)
		m.Keep(room)
		for range 2 {
			if got := scoreAll(t, m, windows)[0]; !slices.Equal(got, want) {
				t.Errorf("room for %d bytes: other logits", room)
			}
		}
		var kept int64
		missing := 0
		for _, x := range m.matrices {
			if x.whole == nil {
				missing++
			} else {
				kept += int64(x.whole.Bytes())
			}
		}
		if kept > room || (missing == 0) != (room == all) || room >= 1<<20 && kept == 0 {
			t.Errorf("room for %d bytes of %d: %d kept, %d matrices are not", room, all, kept, missing)
		}
	}
}

// failing is a source whose tensors end at some read.
type failing struct {
	tensor.Source
	after atomic.Int64
	err   error
}

func (f *failing) Open(name string) (*io.SectionReader, error) {
	r, err := f.Source.Open(name)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(&failingReader{f, r}, 0, r.Size()), nil
}

type failingReader struct {
	f *failing
	r *io.SectionReader
}

func (r *failingReader) ReadAt(p []byte, off int64) (int, error) {
	if r.f.after.Add(-1) < 0 {
		return 0, r.f.err
	}
	return r.r.ReadAt(p, off)
}

// A disk that fails while weights are read ends the pass with its error.
func TestFailingDisk(t *testing.T) {
	m := openModel(t, tinyDir, 2)
	gone := &failing{Source: m.source, err: errors.New("the disk is gone")}
	gone.after.Store(200)
	m.source = gone
	h := make([]float32, 3*m.decoder.Hidden)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = m.Layer(i%len(m.layers)).Forward(t.Context(), h, Equal(1, 3))
	}
	if !errors.Is(err, gone.err) {
		t.Errorf("error %v", err)
	}
}

// A layer that is loaded into the memory of one that was released computes what it computes in new memory, and nothing is allocated for
// its matrices.
func TestRelease(t *testing.T) {
	m := openModel(t, tinyDir, 2)
	forward := func(l *Layer) []float32 {
		h := make([]float32, 3*m.decoder.Hidden)
		for i := range h {
			h[i] = float32(i%7) - 3
		}
		check(t, l.Forward(t.Context(), h, Equal(1, 3)))
		return h
	}
	first, err := m.LoadLayer(0)
	check(t, err)
	want, err := m.LoadLayer(1)
	check(t, err)
	forward(first)
	memory := map[*float32]bool{}
	for _, l := range first.Linears() {
		memory[&l.W[0]] = true
	}
	first.Release()
	again, err := m.LoadLayer(1)
	check(t, err)
	for _, l := range again.Linears() {
		if !memory[&l.W[0]] || l.packed.Bytes() == 0 {
			t.Errorf("%s is in new memory", l.Weight.Tensor)
		}
	}
	if !slices.Equal(forward(again), forward(want)) {
		t.Error("other results")
	}
}

// A matrix that is read slab by slab gives the products and gradients of one that is in memory, to the bit.
func TestSlabs(t *testing.T) {
	const rows, cols, n = 600, 3 * slabBytes / 4 / 600, 3
	if backRows(cols) >= rows || rowsIn(slabBytes, cols) >= rows {
		t.Fatal("the matrix is one slab")
	}
	r := rand.New(rand.NewPCG(1, 2))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = r.Float32() - .5
		}
		return x
	}
	src := &memory{data: map[string][]byte{}}
	src.add("w", floats(rows*cols), rows, cols)
	m := unchecked(&arch.Decoder{}, src, 2)
	of := &arch.Linear{Weight: arch.Weight{Tensor: "w", Rows: rows, Cols: cols}}
	m.addMatrix(of.Weight)
	whole, err := m.loadLinear(of)
	check(t, err)
	slabs := m.linearOf(of)
	x, dy := floats(n*cols), floats(n*rows)
	compute := func(l *Linear) (y, dx, row []float32) {
		y, dx, row = make([]float32, n*rows), make([]float32, n*cols), make([]float32, cols)
		check(t, l.product(t.Context(), y, x))
		check(t, l.backward(t.Context(), dx, dy))
		check(t, l.ReadRows(row, rows-1))
		return y, dx, row
	}
	y, dx, row := compute(whole)
	y2, dx2, row2 := compute(slabs)
	if slabs.InMemory() || !slices.Equal(y, y2) || !slices.Equal(dx, dx2) || !slices.Equal(row, row2) {
		t.Error("other results")
	}
	src.data["w"] = src.data["w"][:len(src.data["w"])-1]
	if err := errors.Join(slabs.product(t.Context(), y, x), slabs.backward(t.Context(), dx, dy)); err == nil {
		t.Error("no error for a tensor that was cut")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := slabs.backward(ctx, dx, dy); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
