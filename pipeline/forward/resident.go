package forward

import (
	"context"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// resident is the way of a token of every window through all layers as a device takes it, which then keeps the keys and values.
type resident struct {
	kernel.Chain
	model    *Model
	matrices map[place]int
	work     effort.Work // of a window, without scores and reading keys and values
	reads    int         // bytes of keys and values of a position of a window
	used     bool        // by tokens that this CPU has no keys and values of
}

// place is a matrix of a chain: what it is for, and how wide it is.
type place struct {
	role
	width int
}

type role uint8

const (
	states role = iota
	normed
	queries0
	keys0
	values0
	inner
	factors
	outputs
)

// newResident describes the layers of a cache to a device, or returns nil if there is something in them that devices do not compute or
// weights that are not in memory.
func newResident(ctx context.Context, c *Cache) (*resident, error) {
	m := c.model
	r := &resident{model: m, matrices: map[place]int{}}
	r.Pasts = &kernel.Pasts{Length: c.length, Version: kernel.NewVersion(), Filled: c.at}
	if m.decoder.Side != 0 {
		return nil, nil
	}
	r.matrix(states, m.decoder.Hidden)
	for _, layer := range m.layers {
		for i := range layer {
			if ok, err := r.branch(ctx, c, &layer[i]); !ok || err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// matrix returns the index of a matrix.
func (r *resident) matrix(of role, width int) int {
	i, ok := r.matrices[place{of, width}]
	if !ok {
		i = len(r.Widths)
		r.matrices[place{of, width}] = i
		r.Widths = append(r.Widths, width)
	}
	return i
}

func (r *resident) add(s ...kernel.Step) { r.Steps = append(r.Steps, s...) }

// branch adds a branch, and reports whether devices compute it.
func (r *resident) branch(ctx context.Context, c *Cache, b *branch) (bool, error) {
	hidden := r.model.decoder.Hidden
	if b.Parallel || b.SumNorm != nil || b.Factors.Tensor != "" || b.Gain.Tensor != "" || b.Scale != 0 && b.Scale != 1 {
		return false, nil
	}
	x := 0
	if b.Norm != nil {
		x = r.matrix(normed, hidden)
		if ok, err := r.norm(x, 0, b.Norm); !ok || err != nil {
			return ok, err
		}
	}
	var read int
	var ok bool
	var err error
	switch block := b.block.(type) {
	case attention:
		read, ok, err = r.attention(ctx, c, block, x)
	case mlp:
		read, ok, err = r.mlp(ctx, block, x)
	}
	if !ok || err != nil {
		return ok, err
	}
	out := r.matrix(outputs, hidden)
	if ok, err := r.linear(ctx, out, read, b.block.last()); !ok || err != nil {
		return ok, err
	}
	if ok, err := r.norm(out, out, b.PostNorm); !ok || err != nil {
		return ok, err
	}
	r.add(&kernel.AddStep{Dst: 0, Src: out})
	return true, nil
}

// norm adds a norm, if it is not nil.
func (r *resident) norm(dst, src int, n *arch.Norm) (bool, error) {
	if n == nil {
		return true, nil
	}
	if n.Centered || n.Beta.Tensor != "" || n.Parts > 1 {
		return false, nil
	}
	read, err := r.model.readNorm(n, r.model.vector)
	if err != nil {
		return false, err
	}
	r.add(&kernel.NormStep{Dst: dst, Src: src, Gamma: kernel.Vector(read.Gamma), Eps: read.Eps})
	return true, nil
}

// linear adds a linear layer, if its weights are in memory.
func (r *resident) linear(ctx context.Context, dst, src int, l *arch.Linear) (bool, error) {
	if l.Clip != nil {
		return false, nil
	}
	f, err := r.model.factor(ctx, output{l, nil})
	if err != nil || f.packed == nil {
		return false, err
	}
	r.add(&kernel.LinearStep{Dst: dst, Src: src, Weights: f.packed.Factor(), Bias: kernel.Vector(f.bias)})
	var t effort.Tally
	t.Linear(1, l.Weight.Rows, l.Weight.Cols)
	r.work = r.work.Plus(t.Done())
	return true, nil
}

// attention adds what makes the input of the last layer of attention, and returns its matrix.
func (r *resident) attention(ctx context.Context, c *Cache, a attention, x int) (out int, ok bool, err error) {
	if a.K.Weight.Tensor == "" || a.V.Weight.Tensor == "" || a.Gate.Weight.Tensor != "" || a.Sinks.Tensor != "" || a.Clip != 0 || a.Cap != 0 ||
		a.Slopes != nil || a.Relative != nil || a.Temperature != nil || a.Lends || a.NormAfter {
		return 0, false, nil
	}
	qWidth, kvWidth := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	all := []struct {
		of   *arch.Linear
		norm *arch.Norm
		at   int
	}{
		{&a.Q, a.QNorm, r.matrix(queries0, qWidth)}, {&a.K, a.KNorm, r.matrix(keys0, kvWidth)}, {&a.V, a.VNorm, r.matrix(values0, kvWidth)},
	}
	for _, p := range all {
		if ok, err := r.linear(ctx, p.at, x, p.of); !ok || err != nil {
			return 0, ok, err
		}
		if ok, err := r.norm(p.at, p.at, p.norm); !ok || err != nil {
			return 0, ok, err
		}
	}
	q, k, v := all[0].at, all[1].at, all[2].at
	if a.Rope != nil && a.Rope.Dim > 0 {
		t := r.model.turned(a.Rope, c.length)
		cos, sin := kernel.Vector(t.cos), kernel.Vector(t.sin)
		r.add(&kernel.RotateStep{Matrix: q, Heads: a.Heads, Dim: a.HeadDim, Turned: t.dim, Cos: cos, Sin: sin},
			&kernel.RotateStep{Matrix: k, Heads: a.KVHeads, Dim: a.HeadDim, Turned: t.dim, Cos: cos, Sin: sin})
	}
	h := heads{count: a.Heads, shared: a.Heads / a.KVHeads, scale: a.Scale, mask: a.mask()}
	if a.Scale == 0 {
		h.scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	r.add(&kernel.AttendStep{
		Dst: q, Queries: q, Keys: k, Values: v, Past: len(r.Pasts.Of), Heads: a.Heads, Scale: float32(h.scale),
		Span: func(at int) (from, first int) {
			from, _ = h.span(h.last(at), at+1)
			first, _ = h.mask(at, at+1)
			return from, first
		},
	})
	r.Pasts.Of = append(r.Pasts.Of, kernel.Past{Heads: a.KVHeads, Key: a.HeadDim, Value: a.HeadDim,
		Of: func(window, head int) (keys, values *kernel.Packed) {
			p := &c.pasts[block(a)][window]
			return &p.keys[head], &p.values[head]
		}})
	r.reads += 4 * a.KVHeads * 2 * a.HeadDim
	if ok, err := r.norm(q, q, a.OutNorm); !ok || err != nil {
		return 0, ok, err
	}
	return q, true, nil
}

// mlp adds what makes the input of the last layer of an MLP, and returns its matrix.
func (r *resident) mlp(ctx context.Context, p mlp, x int) (out int, ok bool, err error) {
	if p.Activation != arch.SiLU || !p.gated() || p.GateScale != 0 && p.GateScale != 1 {
		return 0, false, nil
	}
	gate, up := r.matrix(inner, p.Intermediate), r.matrix(factors, p.Intermediate)
	if ok, err := r.linear(ctx, gate, x, &p.Gate); !ok || err != nil {
		return 0, ok, err
	}
	if ok, err := r.linear(ctx, up, x, &p.Up); !ok || err != nil {
		return 0, ok, err
	}
	r.add(&kernel.GateStep{Matrix: gate, By: up})
	r.work[effort.Element] += float64(p.Intermediate)
	ok, err = r.norm(gate, gate, p.Norm)
	return gate, ok, err
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
	n := len(h) / r.Widths[0]
	r.Rows, r.At, r.States = n, at, slices.Clone(h)
	if !kernel.Offload(&r.Chain) || slices.ContainsFunc(r.States, func(x float32) bool { return x-x != 0 }) {
		return false // the bits of NaN are not those of a CPU
	}
	r.used = true
	copy(h, r.States)
	t := effort.TallyOf(ctx)
	t.AddWork(r.work.Times(float64(n)))
	t.Add(effort.Memory, n*(at+1)*r.reads)
	return true
}
