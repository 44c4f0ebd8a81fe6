package forward

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

type attention struct{ *arch.Attention }

func (a attention) check(m *Model) error {
	if a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("%d heads, %d key heads: %w", a.Heads, a.KVHeads, tensor.ErrCorrupt)
	}
	q, err := width("heads", a.Heads, a.HeadDim)
	if err != nil {
		return err
	}
	hidden, kv := m.decoder.Hidden, q/a.Heads*a.KVHeads
	switch {
	case a.Bidirectional && (a.Chunk != 0 || a.Sinks.Tensor != "" || a.Cap != 0):
		return fmt.Errorf("attention to later positions together with chunks, sinks or a cap: %w", tensor.ErrUnsupported)
	case !finite(a.Scale, 0) || !finite(a.Cap, 0) || !finite(a.Clip, 0) || a.Window < 0 || a.Chunk < 0:
		return fmt.Errorf("scale %v, cap %v, clip %v, window %d, chunk %d: %w", a.Scale, a.Cap, a.Clip, a.Window, a.Chunk, tensor.ErrCorrupt)
	case a.Slopes != nil && len(a.Slopes) != a.Heads:
		return fmt.Errorf("%d slopes of %d heads: %w", len(a.Slopes), a.Heads, tensor.ErrCorrupt)
	case slices.ContainsFunc(a.Slopes, func(x float64) bool { return !finite(math.Abs(x), 0) }):
		return fmt.Errorf("slopes %v: %w", a.Slopes, tensor.ErrCorrupt)
	case a.Temperature != nil && (!finite(a.Temperature.Floor, math.SmallestNonzeroFloat32) || !finite(math.Abs(a.Temperature.Scale), 0)):
		return fmt.Errorf("temperature %+v: %w", *a.Temperature, tensor.ErrCorrupt)
	}
	return cmp.Or(
		m.addRope(a.Rope, a.HeadDim),
		a.checkRelative(m),
		a.checkLent(m, kv),
		m.checkLinears(slot{"attention.q", &a.Q, q, hidden}, slot{"attention.o", &a.O, hidden, q}),
		m.checkOptional(slot{"attention.v", &a.V, kv, hidden}, slot{"attention.gate", &a.Gate, q, hidden}),
		m.checkVector("sinks", a.Sinks, a.Heads),
		m.checkNorm("query norm", a.QNorm, a.HeadDim, q),
		m.checkNorm("key norm", a.KNorm, a.HeadDim, kv),
		m.checkNorm("value norm", a.VNorm, a.HeadDim, kv),
		m.checkNorm("output norm", a.OutNorm, q),
	)
}

// checkLent requires keys, of its own or of another attention.
func (a attention) checkLent(m *Model, kv int) error {
	switch {
	case !a.Borrows:
		err := m.checkLinear("attention.k", &a.K, kv, m.decoder.Hidden)
		if err == nil && a.Lends {
			err = m.checkSide(a.Lent, 2*kv)
		}
		return err
	case a.Lends || a.K.Weight.Tensor != "" || a.V.Weight.Tensor != "" || a.KNorm != nil || a.VNorm != nil || a.Clip != 0 || a.Relative != nil:
		return fmt.Errorf("attention to keys of another layer with keys, norms or bounds of its own: %w", tensor.ErrCorrupt)
	}
	return m.checkSide(a.Lent, 2*kv)
}

func (a attention) cost() cost {
	c := attendCost(a.HeadDim)
	if a.Relative != nil {
		c = attendCost(a.HeadDim + a.Relative.Keys.Weight.Cols)
		c.token = 2*a.Heads*a.HeadDim + (a.Heads+1)*a.Relative.Keys.Weight.Cols
	}
	c.token += (a.Heads + 2*a.KVHeads) * a.HeadDim
	if a.Gate.Weight.Tensor != "" {
		c.token += a.Heads * a.HeadDim
	}
	return c
}

func (a attention) past() pastShape {
	return pastShape{heads: a.KVHeads, key: a.HeadDim, value: a.HeadDim}
}

func (a attention) last() *arch.Linear { return &a.O }

func (a attention) inputs() [][]*arch.Linear {
	return append(readers(&a.Q, &a.K, &a.V, &a.Gate), []*arch.Linear{&a.O})
}

func (a attention) norms() []*arch.Norm { return []*arch.Norm{a.QNorm, a.KNorm, a.VNorm, a.OutNorm} }

func (a attention) run(ctx context.Context, s *space, x []float32) ([]float32, error) {
	return a.compute(ctx, s, x, nil)
}

func (a attention) mask() mask {
	switch {
	case a.Bidirectional && a.Window > 0:
		return within(a.Window)
	case a.Bidirectional:
		return toAll
	}
	return causal(a.Window, a.Chunk)
}

// attended holds the values that the backward pass of attention needs.
type attended struct {
	heads
	// x is the input; the others are from before their norms, and from before clipping.
	x                []float32
	plain, unclipped [3][]float32 // queries, keys, values
	mixed, plainOut  []float32    // before the gate, and before the norm after that
	gates            []float32
}

// qkv returns queries, keys and values as they are attended to, and lends them.
func (a attention) qkv(ctx context.Context, s *space, x []float32, w *attended) ([][]float32, error) {
	qkv, err := s.projections(ctx, x, present(&a.Q, &a.K, &a.V)...)
	if err != nil {
		return nil, err
	}
	if a.Borrows {
		kv := a.KVHeads * a.HeadDim
		qkv = append(qkv, s.columns(a.Lent, kv), s.columns(a.Lent+kv, kv))
	}
	if len(qkv) < 3 { // values are keys
		qkv = append(qkv, s.clone(qkv[1]))
	}
	if err := a.prepare(s, qkv, w); err != nil {
		return nil, err
	}
	if a.Lends {
		s.lend(a.Lent, qkv[1:]...)
	}
	return qkv, nil
}

// compute is run; if w is not nil, it stores there the values that the backward pass needs.
func (a attention) compute(ctx context.Context, s *space, x []float32, w *attended) ([]float32, error) {
	qkv, err := a.qkv(ctx, s, x, w)
	if err != nil {
		return nil, err
	}
	sinks, err := s.vectors(a.Sinks)
	if err != nil {
		return nil, err
	}
	q, k, v := qkv[0], qkv[1], qkv[2]
	h := heads{
		count: a.Heads, shared: a.Heads / a.KVHeads, parts: []part{{q: q, k: k, dim: a.HeadDim}}, v: v, out: q, valueDim: a.HeadDim,
		scale: a.Scale, cap: a.Cap, mask: s.pictured(a.mask(), a.OneWay), slopes: a.Slopes, sinks: sinks[0],
	}
	if a.Scale == 0 {
		h.scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	if a.Relative != nil {
		if h.parts, err = a.relative().parts(s, q, k); err != nil {
			return nil, err
		}
	}
	if w != nil || a.Relative != nil {
		h.out = s.take(a.Heads * a.HeadDim)
	}
	if w != nil {
		w.heads, w.x = h, x
		w.mixed = h.out
	}
	if err := s.attend(ctx, a, &h); err != nil {
		return nil, err
	}
	return a.finish(ctx, s, h.out, x, w)
}

// prepare normalises, clips and turns queries, keys and values, in place.
func (a attention) prepare(s *space, qkv [][]float32, w *attended) error {
	norm := func(i int, n *arch.Norm) error {
		if n == nil {
			return nil
		}
		if w != nil {
			w.plain[i] = s.clone(qkv[i])
		}
		return s.norm(qkv[i], qkv[i], n)
	}
	norms := func() error { return cmp.Or(norm(0, a.QNorm), norm(1, a.KNorm)) }
	err := norm(2, a.VNorm)
	if !a.NormAfter {
		err = cmp.Or(err, norms())
	}
	if a.Clip != 0 {
		for i, x := range qkv {
			if w != nil {
				w.unclipped[i] = s.clone(x)
			}
			s.pointwise(x, func(block []float64) {
				for i, v := range block {
					block[i] = min(max(v, -a.Clip), a.Clip)
				}
			})
		}
	}
	turn := s.rotation(a.Rope)
	s.rotate(qkv[0], turn, a.Heads, a.HeadDim)
	if !a.Borrows {
		s.rotate(qkv[1], turn, a.KVHeads, a.HeadDim)
	}
	if a.NormAfter {
		err = cmp.Or(err, norms())
	}
	if a.Temperature != nil {
		s.warm(qkv[0], a.Heads*a.HeadDim, a.Temperature)
	}
	return err
}

// finish turns o, the result of attention, into the input of O: gated and normalised.
func (a attention) finish(ctx context.Context, s *space, o, x []float32, w *attended) ([]float32, error) {
	if a.Gate.Weight.Tensor != "" {
		gates, err := s.project(ctx, x, &a.Gate)
		if err != nil {
			return nil, err
		}
		s.pointwise(gates, sigmoids)
		if w != nil {
			o = s.clone(o)
			w.gates = gates
		}
		s.mulAll(o, gates)
	}
	if w != nil && a.OutNorm != nil {
		w.plainOut = o
		o = s.clone(o)
	}
	return o, s.norm(o, o, a.OutNorm)
}

func (a attention) record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error) {
	w := new(attended)
	y, err := a.compute(ctx, s, x, w)
	return y, func(dy []float32, v Visitor) ([]float32, error) { return a.back(s, w, dy, v) }, err
}

// back turns do, the gradient of the input of O, into that of the input of the block. It changes do.
func (a attention) back(s *space, w *attended, do []float32, v Visitor) ([]float32, error) {
	width, kvWidth := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	if a.OutNorm != nil {
		s.held.norm(a.OutNorm).back(w.plainOut, do, width, v)
	}
	if w.gates != nil {
		kernel.Parallel(s.threads, len(do), func(lo, hi int) {
			for i := lo; i < hi; i++ {
				g, d := w.gates[i], do[i]
				do[i] = d * g
				w.gates[i] = float32(d*w.mixed[i]) * float32(g*(1-g))
			}
		})
	}
	s.attendBack(&w.heads, do)
	dq, dk, dv := w.parts[0].q, w.parts[0].k, w.v
	if a.Relative != nil {
		if err := a.relative().back(s, dq, w.parts[1].q); err != nil {
			return nil, err
		}
	}
	switch {
	case a.Borrows:
		s.backColumns(a.Lent, dk, dv)
	case a.Lends:
		s.backLent(a.Lent, dk, dv)
	}
	if a.Temperature != nil {
		s.warm(dq, width, a.Temperature)
	}
	norms := func() {
		if a.QNorm != nil {
			s.held.norm(a.QNorm).back(w.plain[0], dq, width, v)
		}
		if a.KNorm != nil {
			s.held.norm(a.KNorm).back(w.plain[1], dk, kvWidth, v)
		}
	}
	if a.NormAfter {
		norms()
	}
	turn := s.rotation(a.Rope).back()
	s.rotate(dq, turn, a.Heads, a.HeadDim)
	s.rotate(dk, turn, a.KVHeads, a.HeadDim)
	if a.Clip != 0 {
		for i, d := range [][]float32{dq, dk, dv} {
			unclip(s.threads, d, w.unclipped[i], float32(a.Clip))
		}
	}
	if !a.NormAfter {
		norms()
	}
	if a.VNorm != nil {
		s.held.norm(a.VNorm).back(w.plain[2], dv, kvWidth, v)
	}
	if a.V.Weight.Tensor == "" { // values are keys
		s.addAll(dk, dv)
	}
	return s.gather(w.x, v, flow{&a.Q, dq}, flow{&a.K, dk}, flow{&a.V, dv}, flow{&a.Gate, w.gates}), nil
}

// unclip clears the gradients of clipped values; x is the content before clipping.
func unclip(threads int, d, x []float32, bound float32) {
	kernel.Parallel(threads, len(d), func(lo, hi int) {
		for j := lo; j < hi; j++ {
			if x[j] < -bound || x[j] > bound {
				d[j] = 0
			}
		}
	})
}

// warm multiplies rows of queries, or their gradients, by the factor of their positions.
func (s *space) warm(q []float32, width int, t *arch.Temperature) {
	for i, pos := range s.positions {
		steps := math.Floor(float64(pos+t.Offset) / t.Floor)
		if steps < 1 {
			continue // the factor is 1
		}
		row := q[i*width : (i+1)*width]
		kernel.Scale(row, row, float32(1+float64(t.Scale*kernel.Log(1+steps))))
	}
}
