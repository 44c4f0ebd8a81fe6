package forward

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Cache holds the states of windows that grow together: keys and values of attention, the last inputs of convolutions, and the
// sums of recurrences. It belongs to one goroutine.
type Cache struct {
	// Progress, if not nil, is called with the part of the present call that is done, from 0 to 1.
	Progress func(part float64)

	model     *Model
	embedding *Embedding
	windows   int
	length    int // of the finished windows
	at        int // position of the next token
	pasts     map[block][]past

	resident *resident // of a device, or nil
	asked    bool      // for it
	tokens   [][]int32 // of all windows, to compute again what a device loses
	most     int64     // of the last Fill
}

// past is the state of a block in a window.
type past struct {
	// keys [length, dim] and values [valueDim, length] are those of each key head.
	keys, values []kernel.Packed
	// inputs of a convolution are the last ones, [taps-1, width], of which the latest min(tokens, taps-1) rows count.
	inputs []float32
	// sums of a recurrence.
	sums []float32
}

// stateful is a block whose output depends on the state that the earlier tokens of a window leave.
type stateful interface {
	block
	past() pastShape
}

// pastShape are the sizes of the state of a block: the number of key heads and the widths of their keys and values, and the
// elements of the other fields of [past].
type pastShape struct{ heads, key, value, inputs, sums int }

// size is the number of float32 values of the state in a window of length tokens.
func (p pastShape) size(length int) int64 {
	panels := func(n int) int64 { return int64((n + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows) }
	return int64(p.heads)*(panels(length)*int64(p.key)+panels(p.value)*int64(length)) + int64(p.inputs) + int64(p.sums)
}

func (p pastShape) make(length int) past {
	x := past{keys: make([]kernel.Packed, p.heads), values: make([]kernel.Packed, p.heads)}
	for i := range p.heads {
		x.keys[i].Resize(length, p.key)
		x.values[i].Resize(p.value, length)
	}
	x.inputs, x.sums = make([]float32, p.inputs), make([]float32, p.sums)
	return x
}

// NewCache returns a cache for windows that will have length tokens each.
func (m *Model) NewCache(windows, length int) (*Cache, error) {
	if p := m.decoder.MaxPositions; p > 0 && length > p {
		return nil, fmt.Errorf("windows of %d tokens, the longest context of the checkpoint is %d: %w", length, p, tensor.ErrUnsupported)
	}
	if bothWays(m.decoder) {
		return nil, fmt.Errorf("bidirectional attention to tokens that are not there yet: %w", tensor.ErrUnsupported)
	}
	if err := m.reach(length); err != nil {
		return nil, err
	}
	c := &Cache{model: m, windows: windows, length: length, pasts: map[block][]past{}, tokens: make([][]int32, windows)}
	for _, l := range m.layers {
		c.add(l)
	}
	var err error
	c.embedding, err = m.Embedding()
	return c, err
}

// bothWays reports whether a layer attends to later tokens.
func bothWays(d *arch.Decoder) bool {
	for _, l := range d.Layers {
		for b := range l.Blocks() {
			if a, ok := b.(*arch.Attention); ok && a.Bidirectional {
				return true
			}
		}
	}
	return false
}

// add makes room for the states of branches.
func (c *Cache) add(branches []branch) {
	for _, b := range branches {
		switch x := b.block.(type) {
		case *sum:
			c.add(x.parts)
		case stateful:
			for range c.windows {
				c.pasts[x] = append(c.pasts[x], x.past().make(c.length))
			}
		}
	}
}

// CacheBytes is the memory for the states of one window of length tokens.
func CacheBytes(d *arch.Decoder, length int) (bytes int64) {
	for _, l := range d.Layers {
		bytes += 4 * pastOf(l, length)
	}
	return bytes
}

func pastOf(l arch.Layer, length int) (n int64) {
	for b := range l.Blocks() {
		if x, err := newBlock(b); err == nil {
			if s, ok := x.(stateful); ok {
				n += s.past().size(length)
			}
		}
	}
	return n
}

// Reset empties the cache, for the same number of windows or fewer.
func (c *Cache) Reset(windows int) {
	c.windows, c.at = windows, 0
	c.tokens = make([][]int32, windows)
	if c.resident != nil {
		c.resident.used = false
		c.resident.Pasts.Version, c.resident.Pasts.Filled = kernel.NewVersion(), 0
	}
}

// Close gives up what a device keeps for the cache.
func (c *Cache) Close() {
	if c.resident != nil {
		kernel.Forget(c.resident.Pasts)
		c.resident = nil
	}
}

// Fill empties the cache and appends to every window the same number of tokens, at least one. It returns the states of the last
// ones after the last layer, [windows, Hidden]. most bounds the tokens that are computed at a time, see [Windows].
func (c *Cache) Fill(ctx context.Context, windows [][]int32, most int64) ([]float32, error) {
	n, width := len(windows[0]), c.model.decoder.Width()
	c.Reset(len(windows))
	for i, w := range windows {
		c.tokens[i] = slices.Clone(w)
	}
	c.most = most
	if n <= fewTokens {
		if h, err := c.grow(ctx, windows); h != nil || err != nil {
			return h, err
		}
	}
	last := make([]float32, len(windows)*width)
	of := Equal(len(windows), n)
	of.Most = min(most, GroupTokens)
	groups, _, _ := of.groups()
	for i, g := range groups {
		first := g.first / n
		h, err := c.append(ctx, g, windows[first:first+len(g.starts)], first, i, len(groups))
		if err != nil {
			return nil, err
		}
		for j, start := range g.starts {
			copy(last[(first+j)*width:(first+j+1)*width], h[(start+n-1)*width:])
		}
	}
	c.at = n
	if c.resident != nil {
		c.resident.Pasts.Filled = n
	}
	return last, context.Cause(ctx)
}

// fewTokens is how many tokens a device computes one after the other sooner than it is given their keys and values.
const fewTokens = 16

// grow is Fill on a device, a token of every window at a time. It returns nil if the device does not do that.
func (c *Cache) grow(ctx context.Context, windows [][]int32) (h []float32, err error) {
	tokens := make([]int32, len(windows))
	for at := range windows[0] {
		for i, w := range windows {
			tokens[i] = w[at]
		}
		if h, err = c.onDevice(ctx, tokens, float64(at+1)/float64(len(windows[0]))); h == nil || err != nil {
			c.at = 0
			return nil, err
		}
	}
	return h, nil
}

// Advance appends a token to every window and returns the states after the last layer, [windows, Hidden]. They are bit for bit
// those that [Layer.Forward] computes for the whole window.
func (c *Cache) Advance(ctx context.Context, tokens []int32) ([]float32, error) {
	if len(tokens) != c.windows || c.at >= c.length {
		panic(fmt.Sprintf("internal error: forward.Cache: %d tokens for %d windows at %d of %d", len(tokens), c.windows, c.at, c.length))
	}
	for i, token := range tokens {
		c.tokens[i] = append(c.tokens[i], token)
	}
	if h, err := c.offload(ctx, tokens); h != nil || err != nil {
		return h, err
	}
	g, windows := group{}, make([][]int32, len(tokens))
	for i := range tokens {
		g.starts, g.lengths = append(g.starts, i), append(g.lengths, 1)
		g.positions, g.totals = append(g.positions, c.at), append(g.totals, c.length)
		windows[i] = tokens[i : i+1]
	}
	h, err := c.append(ctx, g, windows, 0, 0, 1)
	c.at++
	return h, err
}

// offload is Advance on a device. Without one, and if the device has not lost anything, it returns nil.
func (c *Cache) offload(ctx context.Context, tokens []int32) (h []float32, err error) {
	used := c.resident != nil && c.resident.used
	if h, err = c.onDevice(ctx, tokens, 1); h != nil || err != nil || !used {
		return h, err
	}
	return c.Fill(ctx, c.tokens, c.most)
}

// onDevice lets the device advance all windows by a token, after which so much of the call is done. It returns nil if the device does not, which then
// has lost the earlier tokens.
func (c *Cache) onDevice(ctx context.Context, tokens []int32, part float64) (h []float32, err error) {
	if !c.asked && kernel.HasDevice() {
		c.asked = true
		if c.resident, err = newResident(ctx, c); err != nil {
			return nil, err
		}
	}
	if c.resident == nil {
		return nil, nil
	}
	if h, err = c.embedding.at(ctx, tokens, slices.Repeat([]int{c.at}, len(tokens))); err != nil {
		return nil, err
	}
	if !c.resident.advance(ctx, h, c.at) {
		c.Close()
		return nil, nil
	}
	c.at++
	if c.Progress != nil {
		c.Progress(part)
	}
	return h, context.Cause(ctx)
}

// append returns the states after the last layer of the tokens of a group, which belong to windows from window on; it is the
// index-th of count groups.
func (c *Cache) append(ctx context.Context, g group, windows [][]int32, window, index, count int) ([]float32, error) {
	m := c.model
	for i := range g.totals {
		g.totals[i] = c.length
	}
	h, err := c.embedding.at(ctx, slices.Concat(windows...), g.positions)
	if err != nil {
		return nil, err
	}
	a := m.arenas.Get().(*arena)
	defer m.arenas.Put(a)
	free := grow(&a.floats, len(g.positions)*m.cost.token)
	for i, l := range m.layers {
		s := &space{Model: m, group: g, cache: c, window: window, free: free, tally: effort.TallyOf(ctx)}
		if err := s.parted(h, func(h []float32) error { return s.forward(ctx, l, h) }); err != nil {
			return nil, err
		}
		if c.Progress != nil {
			c.Progress((float64(index) + float64(i+1)/float64(len(m.layers))) / float64(count))
		}
	}
	return h, nil
}

// past returns the state of a block in a window of the group, and the number of tokens that it holds; nil without a cache.
func (s *space) past(b stateful, window int) (p *past, tokens int) {
	if s.cache == nil {
		return nil, 0
	}
	return &s.cache.pasts[b][s.window+window], s.cache.at
}

// sums returns elements lo to hi-1 of the sums of a recurrence in a window of the group, or without a cache scratch in place of
// them. They are clear when the window begins.
func (s *space) sums(b stateful, window, lo, hi int, scratch []float32) []float32 {
	p, tokens := s.past(b, window)
	if p != nil {
		scratch = p.sums[lo:hi]
	}
	if tokens == 0 {
		clear(scratch)
	}
	return scratch
}

// keep stores the keys and values of the tokens of the group.
func (s *space) keep(b stateful, h *heads) {
	kv := h.count / h.shared
	kernel.Parallel(s.threads, len(s.lengths)*kv, func(lo, hi int) {
		key := make([]float32, h.dim())
		for ; lo < hi; lo++ {
			p, tokens := s.past(b, lo/kv)
			for j := range s.lengths[lo/kv] {
				h.keepOne(p, key, lo%kv, s.starts[lo/kv]+j, tokens+j)
			}
		}
	})
}

// keepOne stores the key and the value of a token at a position; key is scratch.
func (h *heads) keepOne(p *past, key []float32, head, token, at int) {
	h.key(key, head, token)
	p.keys[head].SetRow(at, key)
	p.values[head].SetColumn(at, h.v[(token*h.count/h.shared+head)*h.valueDim:][:h.valueDim])
}

// attendLast computes the attention of the only token of every window over the earlier ones and itself. It has the bits of
// [space.attend], in which queryRows queries are scored together: the first of them decides where sums begin.
func (s *space) attendLast(b stateful, h *heads) {
	kv, dim, at := h.count/h.shared, h.dim(), s.cache.at
	s.tally.Add(effort.Memory, 4*len(s.lengths)*(at+1)*kv*(dim+h.valueDim))
	kernel.Parallel(s.threads, len(s.lengths)*kv, func(lo, hi int) {
		buffer := s.buffers.Get().(*buffer)
		defer s.buffers.Put(buffer)
		n := at + 1
		ld := n + 1 // one for the sink
		rows, scores := cut(grow(&buffer.floats, h.shared*(dim+ld)), h.shared*dim)
		for ; lo < hi; lo++ {
			window, head := lo/kv, lo%kv
			p, _ := s.past(b, window)
			h.keepOne(p, rows[:dim], head, s.starts[window], at)
			q := queries{head * h.shared, h.shared, at, 1}
			from, to := h.span(h.last(at), n)
			h.gather(rows, q, s.starts[window]-at)
			p.keys[head].MulT(scores, rows, h.shared, ld, dim, from, to)
			h.weigh(scores, nil, ld, q, n, from, to)
			out := h.out[(s.starts[window]*h.count+q.head)*h.valueDim:]
			p.values[head].MulTSpan(out, scores[from:], h.shared, h.valueDim, ld, from, to)
		}
	})
}
