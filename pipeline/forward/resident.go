package forward

import (
	"context"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// resident is the way of a token of every window through all layers as a device takes it, which then keeps the keys and values.
type resident struct {
	course
	reads  int  // bytes of keys and values of a position of a window
	states int  // bytes of states of a window
	used   bool // by tokens that this CPU has no keys and values of
}

// newResident describes the layers of a cache to a device, or returns nil if there is something in them that devices do not compute, or
// weights that are neither in memory nor have room on the device.
func newResident(ctx context.Context, c *Cache) (*resident, error) {
	m := c.model
	r := &resident{course: course{model: m, cache: c, remote: !m.keepsAll() && m.weights.Stored <= kernel.Room(), matrices: map[place]int{}}}
	r.Pasts = &kernel.Pasts{Length: c.length, Version: kernel.NewVersion(), Filled: c.at}
	if m.decoder.Side != 0 {
		return nil, nil
	}
	r.matrix(states, m.decoder.Hidden)
	for _, layer := range m.layers {
		for i := range layer {
			if ok, err := r.branch(ctx, &layer[i]); !ok || err != nil {
				return nil, err
			}
		}
	}
	for _, p := range r.Pasts.Of {
		r.reads += 4 * p.Heads * (p.Key + p.Value)
	}
	for _, step := range r.Steps {
		if x, ok := step.(*kernel.RecurrenceStep); ok {
			r.states += 4 * x.Heads * x.Key * x.Value
		}
	}
	return r, nil
}

// last are the queries of a head whose sums begin where those of the only query at a position do.
func (h *heads) last(at int) queries {
	return queries{0, h.shared, at / queryRows * queryRows, at%queryRows + 1}
}

// turned are the angles of windows of so many tokens.
func (m *Model) turned(of *arch.Rope, tokens int) *angles {
	m.lock.Lock()
	defer m.lock.Unlock()
	r := *m.ropes[of]
	if of.Long != nil && tokens > of.Original {
		return &r.long
	}
	return &r.short
}

// advance lets the device take a token of every window, whose states before the first layer are h, through the layers. It reports false if
// the device does not: then states are as before, and the keys and values of earlier tokens may be lost.
func (r *resident) advance(ctx context.Context, h []float32, at int) bool {
	if r.Pasts.States > 0 && r.Pasts.Filled > 0 {
		return false // nobody brings them what recurrences have left
	}
	n := len(h) / r.Widths[0]
	r.Rows, r.At, r.States = n, at, slices.Clone(h)
	if !kernel.Offload(&r.Chain) || !kernel.Finite(r.model.threads, r.States) {
		return false // the bits of NaN are not those of a CPU
	}
	r.used = true
	copy(h, r.States)
	t := effort.TallyOf(ctx)
	t.AddWork(r.workOf(n))
	t.Add(effort.Memory, n*((at+1)*r.reads+r.states))
	return true
}
