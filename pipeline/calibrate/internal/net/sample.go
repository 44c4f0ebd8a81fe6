package net

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// defaultCache is the memory for keys and values, and that for weights, where [Sampling] names none.
const defaultCache = 1 << 30

// Sampling says which text [Model.Sample] writes.
type Sampling struct {
	// Windows of Length tokens each, First included.
	Windows, Length int
	// First is what every window begins with, at least one token.
	First []int32
	// Temperature divides the logits; 1 draws from the model's own distribution. It is positive.
	Temperature float64
	// TopK limits a draw to so many of the likeliest tokens; 0 is no limit.
	TopK int
	// Seed starts the random numbers: window i has the PCG stream (Seed, i), so that its text depends neither on the
	// number of windows nor on their batches.
	Seed uint64
	// Memory bounds keys and values, in bytes, and so the windows that advance together, of which there is at least one;
	// below 1, 1 GiB.
	Memory int64
	// Weights bounds the bytes of matrices that stay in memory; the others are read again for every token of a batch. Below 1,
	// 1 GiB.
	Weights int64
}

// Sample writes windows of text, each a context of its own. It reads all weights anew, as stored in the checkpoint, and keeps
// as many in float32 as the bound allows, until it returns. progress, if not nil, is told how many of all tokens there are.
// The text does not depend on the bounds.
func (m *Model) Sample(ctx context.Context, s Sampling, progress func(done, total int)) ([][]int32, error) {
	if err := m.checkSampling(&s); err != nil {
		return nil, err
	}
	w := &sampler{model: m, Sampling: s, windows: make([][]int32, s.Windows), random: make([]*rand.PCG, s.Windows)}
	w.forward(s.Weights)
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	for i := range w.windows {
		w.windows[i] = append(make([]int32, 0, s.Length), s.First...)
		w.random[i] = rand.NewPCG(s.Seed, uint64(i))
	}
	batch := w.batch()
	w.reserve(batch)
	for lo := 0; lo < s.Windows; lo += batch {
		if err := w.write(ctx, lo, min(lo+batch, s.Windows), progress); err != nil {
			return nil, err
		}
	}
	return w.windows, nil
}

func (m *Model) checkSampling(s *Sampling) error {
	switch {
	case s.Windows < 0 || s.Length < 1:
		return fmt.Errorf("%d windows of %d tokens", s.Windows, s.Length)
	case len(s.First) < 1 || len(s.First) > s.Length:
		return fmt.Errorf("windows of %d tokens that begin with %d", s.Length, len(s.First))
	case !(s.Temperature > 0) || math.IsInf(s.Temperature, 0) || math.IsInf(1/s.Temperature, 0):
		return fmt.Errorf("temperature %v is not positive", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("the likeliest %d tokens", s.TopK)
	}
	if s.Memory < 1 {
		s.Memory = defaultCache
	}
	if s.Weights < 1 {
		s.Weights = defaultCache
	}
	if err := m.checkLength(s.Length); err != nil {
		return err
	}
	return m.checkTokens(s.First)
}

// sampler writes the windows of a call.
type sampler struct {
	Sampling
	model  *Model
	layers []*Layer
	head   *Head

	windows [][]int32
	random  []*rand.PCG

	pasts      [][]past  // by layer and window of the batch
	attentions sync.Pool // of *kernel.EngineAttention
	draws      sync.Pool // of *drawBuffer
}

// forward makes the sampler's model one of its own that keeps so many bytes of matrices, in the layout of products only.
func (w *sampler) forward(weights int64) {
	m := w.model
	w.model = &Model{decoder: m.decoder, source: m.source, infos: m.infos, threads: m.threads, rotaries: m.rotaries, room: &weights}
}

// load reads the weights, or opens those that stay on disk.
func (w *sampler) load(ctx context.Context) (err error) {
	w.attentions.New = func() any { return new(kernel.EngineAttention) }
	w.draws.New = func() any { return new(drawBuffer) }
	if w.head, err = w.model.Head(); err != nil {
		return err
	}
	for i := range w.model.decoder.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, err := w.model.Layer(i)
		if err != nil {
			return err
		}
		w.layers = append(w.layers, l)
	}
	return nil
}

// past is what a layer has of the earlier tokens of a window: the cache of the kernel where that computes the attention,
// else keys and values as rows.
type past struct {
	cache *kernel.KVCache
	k, v  []float32
}

// masked says that the attention of a layer is another for the queries of such windows than that of the kernel.
func (w *sampler) masked(l *Layer) bool {
	a := l.arch.Attention
	return a.Window > 0 && a.Window < w.Length || a.Chunk > 0 && a.Chunk < w.Length || a.Cap != 0 || a.Slopes != nil
}

// cacheBlock and cacheTile are the positions and the values that kernel.KVCache rounds up to.
const cacheBlock, cacheTile = 64, 16

// cacheBytes is the memory of keys and values of one window of length tokens in a layer.
func cacheBytes(a *arch.Attention, length int) int64 {
	blocks := int64((length + cacheBlock - 1) / cacheBlock)
	return 4 * blocks * cacheBlock * int64(a.KVHeads) * int64(a.HeadDim+(a.HeadDim+cacheTile-1)/cacheTile*cacheTile)
}

// batch is how many windows fit the memory at once.
func (w *sampler) batch() int {
	var bytes int64
	for _, l := range w.layers {
		bytes += cacheBytes(l.arch.Attention, w.Length)
	}
	return int(max(1, min(w.Memory/bytes, int64(w.Windows))))
}

// reserve makes room for the keys and values of a batch. Nothing follows the last token.
func (w *sampler) reserve(windows int) {
	w.pasts = make([][]past, len(w.layers))
	for i, l := range w.layers {
		a := l.arch.Attention
		for range windows {
			var p past
			if size := (w.Length - 1) * l.K.Rows; w.masked(l) {
				p.k, p.v = make([]float32, 0, size), make([]float32, 0, size)
			} else {
				p.cache = kernel.NewKVCache(a.KVHeads, a.HeadDim)
				p.cache.Reserve(w.Length - 1)
			}
			w.pasts[i] = append(w.pasts[i], p)
		}
	}
}

// write draws the tokens of windows lo to hi-1, one position of all of them after another.
func (w *sampler) write(ctx context.Context, lo, hi int, progress func(done, total int)) error {
	m, windows := w.model, w.windows[lo:hi]
	for _, pasts := range w.pasts {
		for i := range pasts {
			p := &pasts[i]
			p.k, p.v = p.k[:0], p.v[:0]
			if p.cache != nil {
				p.cache.Truncate(0)
			}
		}
	}
	tokens := make([]int32, len(windows))
	h := make([]float32, len(windows)*m.decoder.Hidden)
	logits := make([]float32, len(windows)*m.decoder.Vocab)
	failed := make([]error, len(windows))
	for pos := range w.Length - 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i, window := range windows {
			tokens[i] = window[pos]
		}
		if err := m.embed(h, tokens, nil, func(int) int { return pos }); err != nil {
			return err
		}
		for i := range w.layers {
			w.advance(i, h, pos)
			if m.broken != nil {
				return m.broken
			}
		}
		if pos+1 < len(w.First) {
			continue
		}
		w.head.Input(h, h)
		w.head.Logits(logits, h)
		if m.broken != nil {
			return m.broken
		}
		kernel.Parallel(m.threads, len(windows), func(from, to int) {
			b := w.draws.Get().(*drawBuffer)
			defer w.draws.Put(b)
			for i := from; i < to; i++ {
				var token int32
				token, failed[i] = w.draw(b, logits[i*m.decoder.Vocab:(i+1)*m.decoder.Vocab], w.random[lo+i])
				windows[i] = append(windows[i], token)
			}
		})
		for i, err := range failed {
			if err != nil {
				return fmt.Errorf("window %d, token %d: %w", lo+i, pos+1, err)
			}
		}
		if progress != nil {
			progress(lo*w.Length+len(windows)*(pos+2), w.Windows*w.Length)
		}
	}
	return nil
}

// advance takes the residual stream h [windows, Hidden] of position pos through layer i. The attention is one query at a
// time, if possible by the kernel for that, which differs from that of [Layer.Attend] by rounding alone.
func (w *sampler) advance(i int, h []float32, pos int) {
	l, b := w.layers[i], &w.model.buffers
	n := len(h) / w.model.decoder.Hidden
	x, q := grow(&b.norm, len(h)), grow(&b.q, n*l.Q.Rows)
	l.AttentionInput(x, h)
	k, v := l.project(q, x, places{pos, 1, w.Length}, false)
	o := grow(&b.attended, len(q))
	if s := l.arch.Attention.Scale; s != 0 && !w.masked(l) { // the kernel divides by the root of the dimension
		scaleAll(w.model.threads, q, float32(s*math.Sqrt(float64(l.arch.Attention.HeadDim))))
	}
	kernel.Parallel(w.model.threads, n, func(lo, hi int) {
		attention := w.attentions.Get().(*kernel.EngineAttention)
		defer w.attentions.Put(attention)
		for ; lo < hi; lo++ {
			w.attend(attention, l, &w.pasts[i][lo], pos, o[lo*l.O.Cols:(lo+1)*l.O.Cols], q[lo*l.Q.Rows:(lo+1)*l.Q.Rows],
				k[lo*l.K.Rows:(lo+1)*l.K.Rows], v[lo*l.V.Rows:(lo+1)*l.V.Rows])
		}
	})
	l.finish(o, x, false)
	l.AddAttention(h, o)
	l.MLPInput(x, h)
	product := grow(&b.product, n*l.Down.Cols)
	l.Product(product, x)
	l.AddMLP(h, product)
}

// attend computes the attention of one token of one window.
func (w *sampler) attend(by *kernel.EngineAttention, l *Layer, p *past, pos int, o, q, k, v []float32) {
	if p.cache == nil {
		p.k, p.v = append(p.k, k...), append(p.v, v...)
		l.attention(pos+1).last(o, q, p.k, p.v)
		return
	}
	heads := l.arch.Attention.Heads
	by.Tokens, by.Heads = 1, heads
	p.cache.Append(k, v, 1)
	by.Attend(o, q, p.cache, 0, heads, 0, 1)
}
