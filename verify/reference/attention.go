package reference

import (
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
	case !finite(a.Scale, 0) || !finite(a.Cap, 0) || !finite(a.Clip, 0) || a.Window < 0 || a.Chunk < 0:
		return fmt.Errorf("scale %v, cap %v, clip %v, window %d, chunk %d: %w", a.Scale, a.Cap, a.Clip, a.Window, a.Chunk, tensor.ErrCorrupt)
	case a.Slopes != nil && len(a.Slopes) != a.Heads:
		return fmt.Errorf("%d slopes of %d heads: %w", len(a.Slopes), a.Heads, tensor.ErrCorrupt)
	case slices.ContainsFunc(a.Slopes, func(x float64) bool { return !finite(math.Abs(x), 0) }):
		return fmt.Errorf("slopes %v: %w", a.Slopes, tensor.ErrCorrupt)
	case a.Temperature != nil && (!finite(a.Temperature.Floor, math.SmallestNonzeroFloat32) || !finite(math.Abs(a.Temperature.Scale), 0)):
		return fmt.Errorf("temperature %+v: %w", *a.Temperature, tensor.ErrCorrupt)
	}
	if err := m.addRope(a.Rope, a.HeadDim); err != nil {
		return err
	}
	if err := m.checkLinears(
		slot{"attention.q", &a.Q, q, hidden}, slot{"attention.k", &a.K, kv, hidden}, slot{"attention.o", &a.O, hidden, q},
	); err != nil {
		return err
	}
	if a.V.Weight.Tensor != "" {
		if err := m.checkLinear("attention.v", &a.V, kv, hidden); err != nil {
			return err
		}
	}
	if a.Gate.Weight.Tensor != "" {
		if err := m.checkLinear("attention.gate", &a.Gate, q, hidden); err != nil {
			return err
		}
	}
	if a.Sinks.Tensor != "" {
		if err := m.checkWeight("sinks", a.Sinks, a.Heads, 0); err != nil {
			return err
		}
	}
	if err := m.checkNorm("query norm", a.QNorm, a.HeadDim, q); err != nil {
		return err
	}
	if err := m.checkNorm("key norm", a.KNorm, a.HeadDim, kv); err != nil {
		return err
	}
	if err := m.checkNorm("value norm", a.VNorm, a.HeadDim, kv); err != nil {
		return err
	}
	return m.checkNorm("output norm", a.OutNorm, q)
}

func (a attention) cost() cost {
	c := attendCost(a.HeadDim)
	c.token = (a.Heads + 2*a.KVHeads) * a.HeadDim
	if a.Gate.Weight.Tensor != "" {
		c.token += a.Heads * a.HeadDim
	}
	return c
}

func (a attention) run(ctx context.Context, m *Model, out, x []float32, s *space) error {
	n := s.tokens()
	q, k, v := s.take(a.Heads*a.HeadDim), s.take(a.KVHeads*a.HeadDim), s.take(a.KVHeads*a.HeadDim)
	if err := m.linear(ctx, q, x, n, &a.Q); err != nil {
		return err
	}
	if err := m.linear(ctx, k, x, n, &a.K); err != nil {
		return err
	}
	if a.V.Weight.Tensor == "" {
		copy(v, k)
	} else if err := m.linear(ctx, v, x, n, &a.V); err != nil {
		return err
	}
	if a.VNorm != nil {
		if err := m.norm(v, v, a.VNorm); err != nil {
			return err
		}
	}
	normed := func() error {
		if a.QNorm != nil {
			if err := m.norm(q, q, a.QNorm); err != nil {
				return err
			}
		}
		if a.KNorm != nil {
			return m.norm(k, k, a.KNorm)
		}
		return nil
	}
	if !a.NormAfter {
		if err := normed(); err != nil {
			return err
		}
	}
	if a.Clip != 0 {
		for _, x := range [][]float32{q, k, v} {
			m.pointwise(x, func(x float64) float64 { return min(max(x, -a.Clip), a.Clip) })
		}
	}
	s.rotate(m.threads, q, a.Rope, a.Heads, a.HeadDim)
	s.rotate(m.threads, k, a.Rope, a.KVHeads, a.HeadDim)
	if a.NormAfter {
		if err := normed(); err != nil {
			return err
		}
	}
	if a.Temperature != nil {
		s.warm(q, a.Heads*a.HeadDim, a.Temperature)
	}
	h := heads{
		count: a.Heads, shared: a.Heads / a.KVHeads, parts: []part{{q: q, k: k, dim: a.HeadDim}},
		v: v, out: q, valueDim: a.HeadDim,
		scale: a.Scale, cap: a.Cap, window: a.Window, chunk: a.Chunk, slopes: a.Slopes,
	}
	if a.Scale == 0 {
		h.scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	if a.Sinks.Tensor != "" {
		var err error
		if h.sinks, err = m.vector(a.Sinks); err != nil {
			return err
		}
	}
	if err := m.attend(ctx, &h, &s.group); err != nil {
		return err
	}
	if a.Gate.Weight.Tensor != "" {
		gate := s.take(a.Heads * a.HeadDim)
		if err := m.linear(ctx, gate, x, n, &a.Gate); err != nil {
			return err
		}
		m.pointwise(gate, sigmoid)
		m.mulAll(q, gate)
	}
	if a.OutNorm != nil {
		if err := m.norm(q, q, a.OutNorm); err != nil {
			return err
		}
	}
	return m.linear(ctx, out, q, n, &a.O)
}

// warm multiplies rows of queries by the factor of their positions.
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
