package calibrate

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// defaultRoom is the default of both [Sampling.Memory] and [Sampling.Weights].
const defaultRoom = 1 << 30

// Sampling are the arguments of [Sample].
type Sampling struct {
	// Windows of Length tokens each begin with First, at least one token.
	Windows, Length int
	First           []int32
	// Seed starts the random numbers: window i uses the PCG stream (Seed, i), so its text depends neither on the number of windows
	// nor on their batches.
	Seed    uint64
	Threads int
	// Memory bounds keys and values, and so the number of windows that advance together, which is at least one. Weights bounds the
	// matrices that stay in memory; the others are read again for every token of a batch. Both are in bytes; values below 1 mean 1
	// GiB.
	Memory, Weights int64
	// Progress is called with the number of drawn tokens and of all tokens; it may be nil.
	Progress func(done, total int64)
}

func (s *Sampling) check(d *arch.Decoder) error {
	if s.Windows < 0 || s.Length < 1 {
		return fmt.Errorf("%d windows of %d tokens", s.Windows, s.Length)
	}
	if len(s.First) < 1 || len(s.First) > s.Length {
		return fmt.Errorf("windows of %d tokens that begin with %d", s.Length, len(s.First))
	}
	for _, token := range s.First {
		if token < 0 || int(token) >= d.Vocab {
			return fmt.Errorf("token %d is not in a vocabulary of %d", token, d.Vocab)
		}
	}
	if s.Memory < 1 {
		s.Memory = defaultRoom
	}
	if s.Weights < 1 {
		s.Weights = defaultRoom
	}
	return nil
}

// Sample generates text with a model at temperature 1, each window an independent context. The text follows the distribution
// that quantization has to preserve, so it suits calibration, and it needs no data. It depends only on the weights, First and
// Seed.
func Sample(ctx context.Context, d *arch.Decoder, src tensor.Source, s Sampling) ([][]int32, error) {
	if err := s.check(d); err != nil {
		return nil, err
	}
	m, err := forward.New(d, src, s.Threads)
	if err != nil {
		return nil, err
	}
	m.Keep(s.Weights)
	w := &sampler{Sampling: s, model: m, windows: make([][]int32, s.Windows), random: make([]*rand.PCG, s.Windows)}
	if w.head, err = m.Head(); err != nil {
		return nil, err
	}
	for i := range w.windows {
		w.windows[i] = append(make([]int32, 0, s.Length), s.First...)
		w.random[i] = rand.NewPCG(s.Seed, uint64(i))
	}
	batch := int(max(1, min(s.Memory/max(1, forward.CacheBytes(d, s.Length)), int64(s.Windows))))
	if w.cache, err = m.NewCache(batch, s.Length); err != nil {
		return nil, err
	}
	for lo := 0; lo < s.Windows; lo += batch {
		if err := w.write(ctx, lo, min(lo+batch, s.Windows)); err != nil {
			return nil, err
		}
	}
	return w.windows, nil
}

// sampler generates the windows of a call.
type sampler struct {
	Sampling
	model   *forward.Model
	head    *forward.Head
	cache   *forward.Cache
	windows [][]int32
	random  []*rand.PCG
}

// write draws the tokens of windows lo to hi-1, one position of all windows at a time.
func (w *sampler) write(ctx context.Context, lo, hi int) error {
	windows, vocab := w.windows[lo:hi], w.model.Decoder().Vocab
	w.cache.Reset(len(windows))
	tokens, logits, failed := make([]int32, len(windows)), make([]float32, len(windows)*vocab), make([]error, len(windows))
	for pos := range w.Length - 1 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i, window := range windows {
			tokens[i] = window[pos]
		}
		h, err := w.cache.Advance(ctx, tokens)
		if err != nil {
			return err
		}
		if pos+1 < len(w.First) {
			continue
		}
		w.head.Input(h, h)
		if err := w.head.Logits(ctx, logits, h); err != nil {
			return err
		}
		kernel.Parallel(w.Threads, len(windows), func(from, to int) {
			for i := from; i < to; i++ {
				var token int32
				token, failed[i] = next(logits[i*vocab:(i+1)*vocab], w.random[lo+i])
				windows[i] = append(windows[i], token)
			}
		})
		effort.TallyOf(ctx).Add(effort.Element, estimate.LogitFunctions*len(windows)*vocab)
		for i, err := range failed {
			if err != nil {
				return fmt.Errorf("window %d, token %d: %w", lo+i, pos+1, err)
			}
		}
		if w.Progress != nil {
			w.Progress(int64(lo*w.Length+len(windows)*(pos+2)), int64(w.Windows*w.Length))
		}
	}
	return nil
}
