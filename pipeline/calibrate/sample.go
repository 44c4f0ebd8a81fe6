package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Sampling are the arguments of [Sample].
type Sampling struct {
	// Windows of Length tokens each begin with First, at least one token.
	Windows, Length int
	First           []int32
	// Seed starts the random numbers: window i uses the PCG stream (Seed, i), so its text depends neither on the number of windows
	// nor on their batches.
	Seed    uint64
	Threads int
	// Memory bounds weights and the states of windows, and so the number of windows that advance together, which is at least one,
	// and the matrices that stay in memory; the others are read again for every token of a batch. It is in bytes; values below 1
	// mean 2 GiB.
	Memory int64
	// Dir is the directory of the journal of drawn tokens, see [SamplesFile]; there is none if Dir is empty. A call with the same
	// checkpoint and arguments continues there; Threads, Memory and Windows may differ. Lines of other names are ignored.
	Dir, Name string
	// Progress is called with the number of tokens that the model has processed and of all tokens; it may be nil.
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
		s.Memory = 2 << 30
	}
	return nil
}

// Sample generates text with a model at temperature 1, each window an independent context. The text follows the distribution
// that quantization has to preserve, so it suits calibration, and it needs no data. It depends only on the weights, First and
// Seed. Drawn tokens survive a crash: the next call computes the states of unfinished windows in one pass and continues.
func Sample(ctx context.Context, d *arch.Decoder, src tensor.Source, s Sampling) ([][]int32, error) {
	if err := s.check(d); err != nil {
		return nil, err
	}
	m, err := forward.New(d, src, s.Threads)
	if err != nil {
		return nil, err
	}
	w := &sampler{Sampling: s, model: m, windows: make([][]int32, s.Windows), random: make([]*rand.PCG, s.Windows)}
	for i := range w.windows {
		w.windows[i] = append(make([]int32, 0, s.Length), s.First...)
	}
	if w.journal, err = openSamples(&s, w.windows); err != nil {
		return nil, err
	}
	if err := cmp.Or(w.run(ctx), w.journal.close()); err != nil {
		return nil, err
	}
	return w.windows, nil
}

// sampler generates the windows of a call.
type sampler struct {
	Sampling
	model   *forward.Model
	journal samples
	windows [][]int32
	random  []*rand.PCG

	mu       sync.Mutex // of the journal and what follows
	taken    int        // windows that teams write or have written
	teams    []*team
	finished int64 // tokens of finished batches
	reported int64
}

// team is some of the threads, which advance a batch of windows.
type team struct {
	*sampler
	ctx     context.Context
	model   *forward.Model
	head    *forward.Head
	cache   *forward.Cache
	threads int
	tokens  float64   // of the present batch, processed
	logits  []float32 // unless a device has them
}

func (w *sampler) run(ctx context.Context) error {
	for i, window := range w.windows {
		w.random[i] = rand.NewPCG(w.Seed, uint64(i))
		for range len(window) - len(w.First) {
			w.random[i].Uint64()
		}
		if len(window) == w.Length {
			w.finished += int64(w.Length)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.reported = -1
	(&team{sampler: w, ctx: ctx}).report(0)
	if w.Threads < 1 {
		w.Threads = runtime.GOMAXPROCS(0)
	}
	teams, batch, weights := w.share(kernel.Room())
	w.model.Keep(weights)
	for i := range teams {
		t := &team{sampler: w, ctx: ctx, model: w.model, threads: w.Threads}
		if teams > 1 {
			t.threads = w.Threads*(i+1)/teams - w.Threads*i/teams
			t.model = w.model.Share(t.threads)
		}
		w.teams = append(w.teams, t)
	}
	failed := make([]error, teams)
	var working sync.WaitGroup
	for i, t := range w.teams {
		working.Go(func() {
			if failed[i] = t.run(batch); failed[i] != nil {
				cancel(failed[i])
			}
		})
	}
	working.Wait()
	if cmp.Or(failed...) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// take returns the next windows that one team can write, lo to hi-1, none at the end: at most batch windows of the same length.
func (w *sampler) take(batch int) (lo, hi int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lo = w.taken; lo < w.Windows && len(w.windows[lo]) == w.Length; {
		lo++
	}
	for hi = lo; hi < min(lo+batch, w.Windows) && len(w.windows[hi]) == len(w.windows[lo]); {
		hi++
	}
	w.taken = hi
	return lo, hi
}

// run writes batches of windows until there are none.
func (w *team) run(batch int) (err error) {
	if w.head, err = w.model.Head(); err != nil {
		return err
	}
	if w.cache, err = w.model.NewCache(batch, w.Length); err != nil {
		return err
	}
	defer w.cache.Close()
	for {
		lo, hi := w.take(batch)
		if lo == hi {
			return nil
		}
		if err := w.write(lo, hi); err != nil {
			return err
		}
		w.mu.Lock()
		w.finished += int64(hi-lo) * int64(w.Length)
		w.tokens = 0
		w.mu.Unlock()
	}
}

// rereading is how many times as long it takes to read a matrix again, to widen it and to lay it out, as to read it from memory
// for a product.
const rereading = 8

// passing is how many times as long it takes to bring a matrix to a device as to read a float32 one of that many bytes there for a product.
const passing = 32

// Teams have at least so many threads and windows. Two of them wait for each other's threads less than one does, and one computes
// products while the other reads keys and values; but every team reads all weights for a token of its windows. A device takes all windows
// together.
const teamThreads, teamWindows = 8, 64

// share divides the memory: it returns the number of teams, that of the windows that advance together in each of them, and the bytes of
// matrices that stay in memory. For every token of every batch all weights are read, from memory or again from the checkpoint. A larger
// batch reads them less often, a smaller one leaves more memory for them; the time that reading takes decides. If a device takes tokens through all
// layers, the states of windows have room in the remote bytes there, too; weights that have none come for every token, if memory has
// all of them. Otherwise the device reads each once from the checkpoint.
func (w *sampler) share(remote int64) (teams, batch int, weights int64) {
	d, all, slab := w.model.Decoder(), w.model.Weights().All, w.model.Weights().Slab
	window := forward.CacheBytes(d, w.Length) + w.model.TokenBytes() + 4*int64(d.Vocab+2*d.Hidden)
	room := w.Memory - w.model.Overhead(w.Length) - w.model.TokenBytes()*int64(w.Length)
	least := math.Inf(1)
	for batches := 1; batches <= max(1, w.Windows); batches++ {
		n := (w.Windows + batches - 1) / batches
		kept := min(all, max(0, room-int64(n)*window))
		if kept < all {
			kept = max(0, kept-slab)
		}
		if int64(n)*window > room && n > 1 {
			continue
		}
		reread, fits := rereading*float64(all-kept), w.model.Weights().Stored+int64(n)*window <= remote
		if remote > 0 && (kept == all || fits) {
			if int64(n)*window > remote && n > 1 {
				continue
			}
			reread = passing * float64(max(0, w.model.Weights().Stored+int64(n)*window-remote))
		}
		if cost := float64(batches) * (float64(all) + reread); cost < least {
			least, batch, weights = cost, n, kept
		}
	}
	batch = max(1, batch)
	teams = max(1, min(w.Threads/teamThreads, batch/teamWindows))
	if kernel.HasDevice() {
		teams = 1
	}
	for ; teams > 1; teams-- {
		size := (batch + teams - 1) / teams
		// Each team fills its windows with the given tokens in memory of its own.
		need := int64(teams*size)*window + int64(teams-1)*w.model.TokenBytes()*int64(w.Length)
		if weights == all && need+weights <= room {
			return teams, size, weights
		}
	}
	return 1, batch, weights
}

// write draws the remaining tokens of windows lo to hi-1, which have the same length, one position of all windows at a time.
func (w *team) write(lo, hi int) error {
	ctx, windows := w.ctx, w.windows[lo:hi]
	n, tokens := float64(len(windows)), make([]int32, len(windows))
	layers := float64(len(w.model.Decoder().Layers))
	first := float64(len(windows[0]))
	w.cache.Progress = func(part float64) { w.report(n * first * part) }
	h, err := w.cache.Fill(ctx, windows, int64(w.Length))
	for err == nil {
		h = w.head.Input(h, h)
		if err := w.draw(tokens, h, lo); err != nil {
			return err
		}
		for i := range windows {
			windows[i] = append(windows[i], tokens[i])
		}
		if err := w.record(lo, windows); err != nil {
			return err
		}
		length := len(windows[0])
		w.report(n * float64(length))
		if length == w.Length {
			return nil
		}
		w.cache.Progress = func(part float64) { w.report(n * (float64(length) + part*layers/(layers+1))) } // logits follow
		h, err = w.cache.Advance(ctx, tokens)
	}
	return err
}

// draw draws the next tokens of windows, the first of which has number first, by the inputs h of the head.
func (w *team) draw(tokens []int32, h []float32, first int) error {
	at := make([]float64, len(tokens))
	for i := range at {
		at[i] = fraction(w.random[first+i])
	}
	vocab, tally := w.model.Decoder().Vocab, effort.TallyOf(w.ctx)
	tally.Add(effort.Element, estimate.LogitFunctions*len(tokens)*vocab)
	if p, ok := w.head.Offered(w.ctx, h); ok && kernel.Offload(&kernel.Draws{Logits: p, At: at, Tokens: tokens}) {
		tally.Linear(p.Rows, p.Vocab, p.Width)
		return nil
	}
	w.logits = grow(w.logits, len(tokens)*vocab)
	if err := w.head.Logits(w.ctx, w.logits, h); err != nil {
		return err
	}
	failed := make([]error, len(tokens))
	kernel.Parallel(w.threads, len(tokens), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			tokens[i], failed[i] = next(w.logits[i*vocab:(i+1)*vocab], at[i])
		}
	})
	for i, err := range failed {
		if err != nil {
			return fmt.Errorf("window %d, token %d: %w", first+i, len(w.windows[first+i]), err)
		}
	}
	return nil
}

// record writes the last tokens of windows, of which the first has the given number, to the journal.
func (w *team) record(first int, windows [][]int32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.journal.add(first, windows)
}

// report calls Progress if there are more tokens than at the last call; tokens are those of the present batch of the team.
func (w *team) report(tokens float64) {
	if w.Progress == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens = tokens
	sum := 0.0
	for _, t := range w.teams {
		sum += t.tokens
	}
	if done := w.finished + int64(sum); done > w.reported && (len(w.teams) < 2 || w.ctx.Err() == nil) {
		w.reported = done
		w.Progress(done, int64(w.Windows)*int64(w.Length))
	}
}
