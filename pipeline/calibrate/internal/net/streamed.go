package net

import (
	"sync"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// slabBytes bounds the rows of a streamed matrix that a thread holds at a time, in float32.
const slabBytes = 2 << 20

// streamed is a matrix that is read from the checkpoint for every product, some rows at a time.
type streamed struct {
	weight *weight
	model  *Model
	slabs  sync.Pool // of *slab
}

// slab is what a thread needs for the rows that it works on.
type slab struct {
	weight weight // with a buffer of its own
	values []float32
	packed kernel.Packed
}

// slabRows is how many rows of so many columns a slab has, whole panels.
func slabRows(cols int) int {
	return max(1, slabBytes/4/cols/kernel.PanelRows) * kernel.PanelRows
}

// keepOrStream packs the weights of l if the model's room allows it, and else leaves them where they are.
func (m *Model) keepOrStream(l *Linear) error {
	t, err := m.open(l.Weight)
	if err != nil {
		return err
	}
	if size := 4 * int64(l.Rows) * int64(l.Cols); size <= *m.room {
		*m.room -= size
		return l.packFrom(t)
	}
	l.streamed = &streamed{weight: t, model: m, slabs: sync.Pool{New: func() any { return new(slab) }}}
	return nil
}

// packFrom lays the rows of t out for products, without ever holding all of them in another layout.
func (l *Linear) packFrom(t *weight) error {
	l.packed.Resize(l.Rows, l.Cols)
	step := slabRows(l.Cols)
	values := make([]float32, min(step, l.Rows)*l.Cols)
	for lo := 0; lo < l.Rows; lo += step {
		n := min(step, l.Rows-lo)
		if err := t.read(values[:n*l.Cols], lo); err != nil {
			return err
		}
		l.packed.PackRows(values, lo, n, l.Cols)
	}
	l.ready = true
	return nil
}

// applyStreamed is apply for n tokens with weights that are read now. Its bits are those of apply.
func (l *Linear) applyStreamed(dst, x []float32, n int) {
	s, step := l.streamed, slabRows(l.Cols)
	kernel.Parallel(l.threads, (l.Rows+step-1)/step, func(u, end int) {
		b := s.slabs.Get().(*slab)
		defer s.slabs.Put(b)
		raw := b.weight.raw
		b.weight = *s.weight
		b.weight.raw = raw
		for ; u < end; u++ {
			lo, rows := u*step, min(step, l.Rows-u*step)
			w := grow(&b.values, rows*l.Cols)
			if err := b.weight.read(w, lo); err != nil {
				s.model.fail(err)
				return
			}
			b.packed.Pack(w, rows, l.Cols, l.Cols)
			b.packed.MulT(dst[lo:], x, n, l.Rows, l.Cols, 0, rows)
			for i := 0; i < n && l.Bias != nil; i++ {
				y := dst[i*l.Rows+lo : i*l.Rows+lo+rows]
				kernel.Add(y, y, l.Bias[lo:lo+rows])
			}
		}
	})
}

// fail keeps the first error of a product.
func (m *Model) fail(err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.broken == nil {
		m.broken = err
	}
}

// LeastSampling is about how many bytes [Model.Sample] needs for windows of length tokens when no matrix stays in memory: keys
// and values of one window, the slabs of all threads, and logits.
func LeastSampling(d *arch.Decoder, length, threads int) int64 {
	const values, panels, stored = 1, 1, 2 // of a slab, in slabBytes; elements of up to 8 bytes are stored
	bytes := int64(threads)*(values+panels+stored)*slabBytes + 8*int64(d.Vocab)
	for i := range d.Layers {
		if a := d.Pair(i).Attention; a != nil {
			bytes += cacheBytes(a, length)
		}
	}
	return bytes
}
