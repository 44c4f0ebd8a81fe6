package forward

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"

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
