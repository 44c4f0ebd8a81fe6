package forward

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Cache holds the keys and values of windows that grow together, one token at a time. It belongs to one goroutine.
type Cache struct {
	model     *Model
	embedding *Embedding
	windows   int
	length    int // of the finished windows
	at        int // position of the next token
	pasts     map[*arch.Attention][]past
}

// past holds the keys and values of the earlier tokens of a window, [tokens, heads*dim].
type past struct{ k, v []float32 }

// NewCache returns a cache for windows that will have length tokens each. Blocks with a state other than keys and values are
// rejected with tensor.ErrUnsupported.
func (m *Model) NewCache(windows, length int) (*Cache, error) {
	if p := m.decoder.MaxPositions; p > 0 && length > p {
		return nil, fmt.Errorf("windows of %d tokens, the longest context of the checkpoint is %d: %w", length, p, tensor.ErrUnsupported)
	}
	if err := m.reach(length); err != nil {
		return nil, err
	}
	c := &Cache{model: m, windows: windows, length: length, pasts: map[*arch.Attention][]past{}}
	for i, l := range m.layers {
		for _, b := range l {
			switch a := b.Block.(type) {
			case *arch.Attention:
				c.pasts[a] = make([]past, windows)
			case *arch.MLP, *arch.Experts: // each token by itself
			default:
				return nil, fmt.Errorf("layer %d: %T cannot advance by single tokens: %w", i, b.Block, tensor.ErrUnsupported)
			}
		}
	}
	var err error
	c.embedding, err = m.Embedding()
	return c, err
}

// CacheBytes is the memory of keys and values of one window of length tokens.
func CacheBytes(d *arch.Decoder, length int) (bytes int64) {
	for _, l := range d.Layers {
		for _, b := range l {
			if a, ok := b.Block.(*arch.Attention); ok {
				bytes += 2 * 4 * int64(length) * int64(a.KVHeads) * int64(a.HeadDim)
			}
		}
	}
	return bytes
}

// Reset empties the cache, for the same number of windows or fewer.
func (c *Cache) Reset(windows int) {
	c.windows, c.at = windows, 0
}

// Advance appends a token to every window and returns the states after the last layer, [windows, Hidden]. They are bit for bit
// those that [Layer.Forward] computes for the whole window.
func (c *Cache) Advance(ctx context.Context, tokens []int32) ([]float32, error) {
	m := c.model
	if len(tokens) != c.windows || c.at >= c.length {
		panic(fmt.Sprintf("internal error: forward.Cache: %d tokens for %d windows at %d of %d", len(tokens), c.windows, c.at, c.length))
	}
	g := group{}
	for i := range tokens {
		g.starts, g.lengths = append(g.starts, i), append(g.lengths, 1)
		g.positions, g.totals = append(g.positions, c.at), append(g.totals, c.length)
	}
	h, err := c.embedding.at(ctx, tokens, g.positions)
	if err != nil {
		return nil, err
	}
	arena := m.arenas.Get().(*[]float32)
	defer m.arenas.Put(arena)
	*arena = grow(arena, len(tokens)*m.cost.token)
	for _, l := range m.layers {
		s := &space{Model: m, group: g, cache: c, free: *arena}
		if err := s.forward(ctx, l, h); err != nil {
			return nil, err
		}
	}
	c.at++
	return h, nil
}

// attend computes the attention of the last token of every window.
func (c *Cache) attend(h *heads, a *arch.Attention) {
	width, n := a.KVHeads*a.HeadDim, c.at+1
	k, v := h.parts[0].k, h.v
	kernel.Parallel(c.model.threads, c.windows, func(lo, hi int) {
		rows, scores := make([]float32, h.shared*a.HeadDim), make([]float32, h.shared*(n+1))
		for ; lo < hi; lo++ {
			p := &c.pasts[a][lo]
			if p.k == nil {
				p.k, p.v = make([]float32, 0, c.length*width), make([]float32, 0, c.length*width)
			}
			p.k = append(p.k[:c.at*width], k[lo*width:(lo+1)*width]...)
			p.v = append(p.v[:c.at*width], v[lo*width:(lo+1)*width]...)
			for kv := range a.KVHeads {
				q := queries{kv * h.shared, h.shared, c.at, 1}
				from, to := h.span(q, n)
				h.gather(rows, q, lo-c.at)
				kernel.MatMulT(scores[from:], rows, p.k[from*width+kv*a.HeadDim:], h.shared, to-from, a.HeadDim, n+1, a.HeadDim, width)
				h.weigh(scores, nil, n+1, q, n, from, to)
				out := h.out[(lo*h.count+q.head)*a.HeadDim:]
				kernel.MatMul(out, scores[from:], p.v[from*width+kv*a.HeadDim:], h.shared, a.HeadDim, to-from, a.HeadDim, n+1, width)
			}
		}
	})
}
