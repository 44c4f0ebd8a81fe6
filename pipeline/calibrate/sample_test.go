package calibrate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSample(t *testing.T) {
	d, src := openCheckpoint(t, tinyDir)
	s := Sampling{Windows: 5, Length: 12, First: []int32{8191, 37}, Seed: 4}
	p := &tally{t: t}
	s.Progress = p.add
	want, err := Sample(t.Context(), d, src, s)
	check(t, err)
	if p.end(); p.total != 60 {
		t.Errorf("%d tokens", p.total)
	}
	for _, w := range want {
		if len(w) != 12 || w[0] != 8191 || w[1] != 37 {
			t.Errorf("window %v", w)
		}
	}
	if slices.Equal(want[0], want[1]) {
		t.Error("two windows are the same")
	}
	for _, c := range []struct {
		threads int
		memory  int64
		windows int
	}{{1, 1, 5}, {2, plenty, 3}, {7, 0, 6}} {
		s := s
		s.Threads, s.Memory, s.Windows, s.Progress = c.threads, c.memory, c.windows, nil
		got, err := Sample(t.Context(), d, src, s)
		check(t, err)
		for i := range min(len(want), len(got)) {
			if !slices.Equal(want[i], got[i]) {
				t.Errorf("%+v: window %d is %v, want %v", c, i, got[i], want[i])
			}
		}
	}
	s.Seed, s.Progress = 5, nil
	other, err := Sample(t.Context(), d, src, s)
	check(t, err)
	if slices.Equal(want[0], other[0]) {
		t.Error("another seed writes the same text")
	}
}

func TestSampleFails(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	lost := errors.New("lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := Sampling{Windows: 2, Length: 50, First: []int32{1}, Threads: 1, Memory: 1}
	calls := 0
	s.Progress = func(int64, int64) {
		calls++
		cancel(lost)
	}
	if _, err := Sample(ctx, d, src, s); !errors.Is(err, lost) || calls != 1 {
		t.Errorf("cancelled: %v after %d tokens", err, calls)
	}
	s.First = nil
	if _, err := Sample(t.Context(), d, src, s); err == nil {
		t.Error("windows begin with nothing")
	}
	name := pairOf(d, 0).MLP.Up.Weight.Tensor
	s.First = []int32{1}
	if _, err := Sample(t.Context(), d, &poisoned{src, name, bf16NaN}, s); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("NaN: %v", err)
	}
}
