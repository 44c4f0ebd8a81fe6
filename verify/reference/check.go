package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// check demands that the description is consistent and that the source has what it names, so that the
// computation cannot run out of a slice.
func (m *Model) check() error {
	d := m.decoder
	if len(d.Layers) < 1 || d.Hidden < 1 || d.Vocab < 1 {
		return fmt.Errorf("a decoder of %d layers, width %d and %d tokens: %w", len(d.Layers), d.Hidden, d.Vocab, tensor.ErrCorrupt)
	}
	if err := m.checkWeight("embedding", d.Embedding, d.Vocab, d.Hidden); err != nil {
		return err
	}
	if err := checkRope(d.Ropes[0]); err != nil {
		return err
	}
	for i := range d.Layers {
		if err := m.checkLayer(d.Plain(i)); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	if err := m.checkNorm("final norm", &d.FinalNorm, d.Hidden); err != nil {
		return err
	}
	return m.checkLinear("head", &d.Head, d.Vocab, d.Hidden)
}

func (m *Model) checkLayer(l arch.Plain) error {
	hidden, a, mlp := m.decoder.Hidden, l.Attention, l.MLP
	if a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 || a.HeadDim < 1 || mlp.Intermediate < 1 {
		return fmt.Errorf("%d heads, %d key heads of %d elements, %d intermediate: %w", a.Heads, a.KVHeads, a.HeadDim, mlp.Intermediate, tensor.ErrCorrupt)
	}
	if a.HeadDim < m.decoder.Ropes[0].Dim {
		return fmt.Errorf("rotation of %d elements of a head of %d: %w", m.decoder.Ropes[0].Dim, a.HeadDim, tensor.ErrCorrupt)
	}
	query, err := tensor.Mul(int64(a.Heads), int64(a.HeadDim))
	if err != nil || query > math.MaxInt32 {
		return fmt.Errorf("%d heads of %d elements: %w", a.Heads, a.HeadDim, tensor.ErrCorrupt)
	}
	q, kv := int(query), int(query)/a.Heads*a.KVHeads
	for _, c := range []struct {
		name       string
		linear     *arch.Linear
		rows, cols int
	}{
		{"attention.q", &a.Q, q, hidden}, {"attention.k", &a.K, kv, hidden}, {"attention.v", &a.V, kv, hidden}, {"attention.o", &a.O, hidden, q},
		{"mlp.gate", &mlp.Gate, mlp.Intermediate, hidden}, {"mlp.up", &mlp.Up, mlp.Intermediate, hidden}, {"mlp.down", &mlp.Down, hidden, mlp.Intermediate},
	} {
		if err := m.checkLinear(c.name, c.linear, c.rows, c.cols); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name string
		norm *arch.Norm
		n    int
	}{
		{"attention norm", l.AttentionNorm, hidden}, {"mlp norm", l.MLPNorm, hidden}, {"query norm", a.QNorm, a.HeadDim}, {"key norm", a.KNorm, a.HeadDim},
	} {
		if c.norm == nil {
			continue
		}
		if err := m.checkNorm(c.name, c.norm, c.n); err != nil {
			return err
		}
	}
	return nil
}

func checkRope(r *arch.Rope) error {
	if r.Dim < 0 || r.Dim%2 != 0 || len(r.InvFreq) != r.Dim/2 {
		return fmt.Errorf("%d rotary frequencies for %d elements: %w", len(r.InvFreq), r.Dim, tensor.ErrCorrupt)
	}
	for j, f := range r.InvFreq {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("rotary frequency %d is %v: %w", j, f, tensor.ErrCorrupt)
		}
	}
	return nil
}

func (m *Model) checkNorm(slot string, n *arch.Norm, size int) error {
	return m.checkWeight(slot, n.Gamma, size, 0)
}

func (m *Model) checkLinear(slot string, l *arch.Linear, rows, cols int) error {
	if err := m.checkWeight(slot, l.Weight, rows, cols); err != nil {
		return err
	}
	if l.Bias.Tensor == "" {
		return nil
	}
	return m.checkWeight(slot+" bias", l.Bias, rows, 0)
}

// checkWeight compares a slot with what the computation needs and with the tensor of the source.
func (m *Model) checkWeight(slot string, w arch.Weight, rows, cols int) error {
	if w.Rows != rows || w.Cols != cols {
		return fmt.Errorf("%s: the description says %d x %d, the computation needs %d x %d: %w", slot, w.Rows, w.Cols, rows, cols, tensor.ErrCorrupt)
	}
	info, ok := m.infos[w.Tensor]
	if !ok {
		return fmt.Errorf("%s: the checkpoint has no tensor %q: %w", slot, w.Tensor, tensor.ErrCorrupt)
	}
	shape := tensor.Shape{int64(rows)}
	if cols > 0 {
		shape = append(shape, int64(cols))
	}
	if !slices.Equal(info.Shape, shape) {
		return fmt.Errorf("%s: %s has shape %v, not %v: %w", slot, w.Tensor, info.Shape, shape, tensor.ErrCorrupt)
	}
	if err := kernel.ToF32(nil, nil, info.DType); err != nil {
		return fmt.Errorf("%s: %s: %w", slot, w.Tensor, err)
	}
	n, err := shape.Elements()
	if err == nil {
		n, err = tensor.Mul(n, info.DType.Size())
	}
	if err == nil && n != info.Size {
		err = fmt.Errorf("%d bytes for %s %v: %w", info.Size, info.DType, shape, tensor.ErrCorrupt)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", slot, w.Tensor, err)
	}
	return nil
}
