package verify

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTileRows(t *testing.T) {
	for _, c := range []struct {
		name                string
		memory              int64
		window, vocab, want int
	}{
		{"small vocabulary", 1 << 30, 512, 8192, 512},
		{"large vocabulary", 1 << 30, 512, 151936, 73},
		{"little memory", 1 << 20, 512, 151936, leastRows},
		{"short window", 1 << 20, 8, 151936, 8},
	} {
		if got := tileRows(Options{Memory: c.memory, Window: c.window}, c.vocab); got != c.want {
			t.Errorf("%s: %d rows, want %d", c.name, got, c.want)
		}
	}
}

// A tile's statistics are those of its rows, for any number of threads and whatever the rows before it held.
func TestTileScores(t *testing.T) {
	const rows, vocab, bad = 9, 37, 4
	rng := rand.New(rand.NewPCG(5, 6))
	logits := func() []float32 {
		x := make([]float32, rows*vocab)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	ref, float, int8 := logits(), logits(), logits()
	int8[bad*vocab] = float32(math.NaN())
	copy(float[:vocab], ref) // the same most likely token at the first position
	next := make([]int32, rows)
	for i := range next {
		next[i] = int32(rng.IntN(vocab))
	}
	var first []scores
	for _, threads := range []int{1, 3, 8} {
		got := make([]scores, rows)
		for i := range got {
			got[i] = scores{finite: true, source: -1, float: score{-1, -1, true}, int8: score{-1, -1, true}}
		}
		tileScores(got, threads, vocab, next, ref, float, int8)
		if first == nil {
			first = got
		}
		if !slices.Equal(got, first) {
			t.Errorf("%d threads: scores differ", threads)
		}
	}
	for i, s := range first {
		at, end := i*vocab, (i+1)*vocab
		if s.finite != (i != bad) {
			t.Errorf("position %d: finite is %v", i, s.finite)
		}
		_, source := naive(ref[at:end], ref[at:end], int(next[i]))
		if math.Abs(s.source-source) > statTolerance {
			t.Errorf("position %d: source %g, want %g", i, s.source, source)
		}
		if !s.finite {
			continue
		}
		kl, _ := naive(ref[at:end], int8[at:end], int(next[i]))
		_, nll := naive(int8[at:end], int8[at:end], int(next[i]))
		if math.Abs(s.int8.kl-kl) > statTolerance || math.Abs(s.int8.nll-nll) > statTolerance {
			t.Errorf("position %d: %+v, want KL %g, NLL %g", i, s.int8, kl, nll)
		}
	}
	if f := first[0].float; !f.same || f.kl != 0 {
		t.Errorf("equal rows: %+v", f)
	}
	alone := make([]scores, rows)
	tileScores(alone, 2, vocab, next, nil, float, int8)
	if s := alone[0]; s.source != 0 || s.float.kl != 0 || s.float.same || s.float.nll != first[0].float.nll {
		t.Errorf("without a reference: %+v", s)
	}
}
