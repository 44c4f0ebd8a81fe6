package verify

import (
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// logitRows returns the logits [to-from, vocab] of rows from to to-1, valid until the next call.
type logitRows func(ctx context.Context, from, to int) ([]float32, error)

// sourceLogits makes logits of hidden states [tokens, hidden] of the source, or of a part of it.
func (s *Subject) sourceLogits(ref Reference, h []float32) logitRows {
	var memory []float32
	width, vocab := s.Source.Model.Hidden, s.Source.Model.Vocab
	return func(ctx context.Context, from, to int) ([]float32, error) {
		n := (to - from) * vocab
		if len(memory) < n {
			memory = make([]float32, n)
		}
		return memory[:n], ref.Logits(ctx, memory[:n], h[from*width:to*width])
	}
}

// gaps are the differences of rows of logits.
type gaps []gap

// gap has the divergence of a row and its largest difference.
type gap struct{ kl, diff float64 }

// compareLogits returns the mean divergence and the largest difference of n rows of logits, of which few are in memory at a time.
func (s *Subject) compareLogits(ctx context.Context, n int, want, got logitRows) (kl, diff float64, err error) {
	var all gaps
	vocab := s.Package.Vocabulary()
	for from, rows := 0, tileRows(s.Options, vocab); from < n; from += rows {
		to := min(from+rows, n)
		a, err := want(ctx, from, to)
		if err != nil {
			return 0, 0, err
		}
		b, err := got(ctx, from, to)
		if err != nil {
			return 0, 0, err
		}
		if len(a) != len(b) || len(a) != (to-from)*vocab {
			return 0, 0, &widthError{len(b) / (to - from), len(a) / (to - from)}
		}
		all = all.add(a, b, vocab, s.Options.Threads)
	}
	kl, diff = all.sum()
	return kl, diff, nil
}

// widthError says that a graph has another vocabulary than the source.
type widthError struct{ got, want int }

func (e *widthError) Error() string {
	return fmt.Sprintf("the graph computes %d logits for a token, the source %d", e.got, e.want)
}

// add appends the differences of [n, vocab] logits.
func (g gaps) add(want, got []float32, vocab, threads int) gaps {
	list := make(gaps, len(want)/vocab)
	kernel.Parallel(threads, len(list), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			a, b := newRow(want[r*vocab:(r+1)*vocab]), newRow(got[r*vocab:(r+1)*vocab])
			if !a.finite() || !b.finite() {
				list[r] = gap{math.Inf(1), math.Inf(1)}
				continue
			}
			list[r].kl = a.kl(b)
			for i, v := range a.logits {
				list[r].diff = max(list[r].diff, math.Abs(float64(v)-float64(b.logits[i])))
			}
		}
	})
	return append(g, list...)
}

// sum returns the mean divergence and the largest difference.
func (g gaps) sum() (kl, diff float64) {
	for _, x := range g {
		kl += x.kl / float64(len(g))
		diff = max(diff, x.diff)
	}
	return kl, diff
}
