package net

import (
	"errors"
	"io"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestRoom: what a sampler keeps of the weights is within the bound, whatever the bound is, and the rest is streamed.
func TestRoom(t *testing.T) {
	m := openModel(t, tinyDir, 2)
	var all int64
	for _, room := range []int64{1 << 40, 9 << 20, 1 << 20, 1} {
		w := &sampler{model: m}
		w.forward(room)
		if err := w.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		var kept int64
		streams := 0
		linears := []*Linear{w.head.Linear}
		for _, l := range w.layers {
			linears = append(linears, l.Linears()...)
		}
		for _, l := range linears {
			if l.W != nil || (l.streamed != nil) == l.ready {
				t.Fatalf("%s: rows in memory, or neither packed nor streamed", l.Weight.Tensor)
			}
			if l.streamed != nil {
				streams++
			}
			kept += int64(l.packed.Bytes())
		}
		if all == 0 {
			all = kept
		}
		if kept > room || (streams == 0) != (room > all) {
			t.Errorf("room for %d bytes: %d kept of %d, %d matrices streamed", room, kept, all, streams)
		}
	}
}

// failing is a source whose tensors end at some read.
type failing struct {
	tensor.Source
	after int
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
	if r.f.after--; r.f.after < 0 {
		return 0, r.f.err
	}
	return r.r.ReadAt(p, off)
}

// A disk that fails while weights are streamed ends the sample with its error.
func TestStreamedFailure(t *testing.T) {
	m := openModel(t, tinyDir, 1)
	broken := &failing{Source: m.source, after: 200, err: errors.New("the disk is gone")}
	m.source = broken
	_, err := m.Sample(t.Context(), Sampling{Windows: 1, Length: 20, First: []int32{12}, Temperature: 1, Weights: 1}, nil)
	if !errors.Is(err, broken.err) {
		t.Errorf("error %v", err)
	}
}
