package net

import (
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxFrequency bounds rotary frequencies, in radians per position, so that no angle exceeds kernel.SincosLimit.
const maxFrequency = kernel.SincosLimit / longestWindow

// slot is a weight with the shape that the computation needs; cols is 0 for a vector.
type slot struct {
	name       string
	weight     arch.Weight
	rows, cols int
}

// check demands that the description is consistent and that the source has what it names, so that the computation
// cannot run out of a slice.
func (m *Model) check() error {
	d := m.decoder
	if len(d.Layers) < 1 || d.Hidden < 1 || d.Vocab < 1 {
		return fmt.Errorf("a decoder of %d layers, width %d and %d tokens: %w", len(d.Layers), d.Hidden, d.Vocab, tensor.ErrCorrupt)
	}
	if err := d.CheckPlain(); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	if r := d.Ropes[0]; r.Dim < 0 || r.Dim%2 != 0 || len(r.InvFreq) != r.Dim/2 {
		return fmt.Errorf("%d rotary frequencies for %d elements: %w", len(r.InvFreq), r.Dim, tensor.ErrCorrupt)
	}
	for j, f := range d.Ropes[0].InvFreq {
		if !(math.Abs(f) <= maxFrequency) {
			return fmt.Errorf("rotary frequency %d is %v: %w", j, f, tensor.ErrCorrupt)
		}
	}
	slots := []slot{{"embedding", d.Embedding, d.Vocab, d.Hidden}, {"final norm", d.FinalNorm.Gamma, d.Hidden, 0}}
	if err := m.checkSlots(appendLinear(slots, "head", &d.Head, d.Vocab, d.Hidden)); err != nil {
		return err
	}
	for i := range d.Layers {
		slots, err := m.layerSlots(d.Plain(i))
		if err == nil {
			err = m.checkSlots(slots)
		}
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

// layerSlots lists the weights of a layer.
func (m *Model) layerSlots(l arch.Plain) ([]slot, error) {
	hidden, a, mlp := m.decoder.Hidden, l.Attention, l.MLP
	if a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 || a.HeadDim < 1 || mlp.Intermediate < 1 {
		return nil, fmt.Errorf("%d heads, %d key heads of %d elements, %d intermediate: %w", a.Heads, a.KVHeads, a.HeadDim, mlp.Intermediate, tensor.ErrCorrupt)
	}
	if a.HeadDim < m.decoder.Ropes[0].Dim {
		return nil, fmt.Errorf("rotation of %d elements of a head of %d: %w", m.decoder.Ropes[0].Dim, a.HeadDim, tensor.ErrCorrupt)
	}
	query, err := tensor.Mul(int64(a.Heads), int64(a.HeadDim))
	if err != nil || query > math.MaxInt32 {
		return nil, fmt.Errorf("%d heads of %d elements: %w", a.Heads, a.HeadDim, tensor.ErrCorrupt)
	}
	q, kv := int(query), int(query)/a.Heads*a.KVHeads
	slots := []slot{{"attention norm", l.AttentionNorm.Gamma, hidden, 0}, {"mlp norm", l.MLPNorm.Gamma, hidden, 0}}
	if a.QNorm != nil {
		slots = append(slots, slot{"query norm", a.QNorm.Gamma, a.HeadDim, 0})
	}
	if a.KNorm != nil {
		slots = append(slots, slot{"key norm", a.KNorm.Gamma, a.HeadDim, 0})
	}
	slots = appendLinear(slots, "attention.q", &a.Q, q, hidden)
	slots = appendLinear(slots, "attention.k", &a.K, kv, hidden)
	slots = appendLinear(slots, "attention.v", &a.V, kv, hidden)
	slots = appendLinear(slots, "attention.o", &a.O, hidden, q)
	slots = appendLinear(slots, "mlp.gate", &mlp.Gate, mlp.Intermediate, hidden)
	slots = appendLinear(slots, "mlp.up", &mlp.Up, mlp.Intermediate, hidden)
	return appendLinear(slots, "mlp.down", &mlp.Down, hidden, mlp.Intermediate), nil
}

func appendLinear(slots []slot, name string, l *arch.Linear, rows, cols int) []slot {
	slots = append(slots, slot{name, l.Weight, rows, cols})
	if l.Bias.Tensor != "" {
		slots = append(slots, slot{name + " bias", l.Bias, rows, 0})
	}
	return slots
}

func (m *Model) checkSlots(slots []slot) error {
	for _, s := range slots {
		if err := m.checkSlot(s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// checkSlot compares a slot with the description and with the tensor of the source.
func (m *Model) checkSlot(s slot) error {
	w := s.weight
	if w.Rows != s.rows || w.Cols != s.cols {
		return fmt.Errorf("the description says %d x %d, the computation needs %d x %d: %w", w.Rows, w.Cols, s.rows, s.cols, tensor.ErrCorrupt)
	}
	info, ok := m.infos[w.Tensor]
	if !ok {
		return fmt.Errorf("the checkpoint has no tensor %q: %w", w.Tensor, tensor.ErrCorrupt)
	}
	shape := tensor.Shape{int64(s.rows)}
	if s.cols > 0 {
		shape = append(shape, int64(s.cols))
	}
	if !slices.Equal(info.Shape, shape) {
		return fmt.Errorf("%s has shape %v, not %v: %w", w.Tensor, info.Shape, shape, tensor.ErrCorrupt)
	}
	if err := kernel.ToF32(nil, nil, info.DType); err != nil {
		return fmt.Errorf("%s: %w", w.Tensor, err)
	}
	n, err := shape.Elements()
	if err == nil {
		n, err = tensor.Mul(n, info.DType.Size())
	}
	if err == nil && n != info.Size {
		err = fmt.Errorf("%d bytes for %s %v: %w", info.Size, info.DType, shape, tensor.ErrCorrupt)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w.Tensor, err)
	}
	return nil
}

// checkLength demands a window that the rotary table can serve and the checkpoint was made for.
func (m *Model) checkLength(n int) error {
	longest := longestWindow
	if p := m.decoder.MaxPositions; p > 0 {
		longest = min(longest, p)
	}
	if n > longest {
		return fmt.Errorf("windows of %d tokens, where %d are the most: %w", n, longest, tensor.ErrUnsupported)
	}
	return nil
}

func (m *Model) checkTokens(tokens []int32) error {
	for _, token := range tokens {
		if token < 0 || int(token) >= m.decoder.Vocab {
			return fmt.Errorf("token %d is not in a vocabulary of %d", token, m.decoder.Vocab)
		}
	}
	return nil
}
