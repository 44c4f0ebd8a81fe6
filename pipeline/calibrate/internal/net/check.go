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
	if err := d.CheckPairs(); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	if !positive(d.EmbeddingScale) || !positive(d.LogitScale) || !positive(d.LogitCap) {
		return fmt.Errorf("embeddings times %v, logits times %v within %v: %w", d.EmbeddingScale, d.LogitScale, d.LogitCap, tensor.ErrCorrupt)
	}
	slots := appendNorm([]slot{{"embedding", d.Embedding, d.Vocab, d.Hidden}}, "embedding norm", d.EmbeddingNorm, d.Hidden)
	if d.Positions.Tensor != "" {
		if d.FirstPosition < 0 || d.MaxPositions < 1 {
			return fmt.Errorf("%d learned positions from row %d on: %w", d.MaxPositions, d.FirstPosition, tensor.ErrCorrupt)
		}
		slots = append(slots, slot{"positions", d.Positions, d.FirstPosition + d.MaxPositions, d.Hidden})
	}
	slots = appendNorm(slots, "final norm", &d.FinalNorm, d.Hidden)
	if err := m.checkSlots(appendLinear(slots, "head", &d.Head, d.Vocab, d.Hidden)); err != nil {
		return err
	}
	for i := range d.Layers {
		slots, err := m.layerSlots(d.Pair(i))
		if err == nil {
			err = m.checkSlots(slots)
		}
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

// positive demands a factor or a bound, of which 0 says that there is none.
func positive(x float64) bool {
	y := float32(x)
	return x == 0 || y > 0 && !math.IsInf(float64(y), 0)
}

// checkAttention demands sizes and factors that can be computed with, and returns the widths of queries and keys.
func checkAttention(a *arch.Attention) (q, kv int, err error) {
	if a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 || a.HeadDim < 1 {
		return 0, 0, fmt.Errorf("%d heads, %d key heads of %d elements: %w", a.Heads, a.KVHeads, a.HeadDim, tensor.ErrCorrupt)
	}
	query, err := tensor.Mul(int64(a.Heads), int64(a.HeadDim))
	if err != nil || query > math.MaxInt32 {
		return 0, 0, fmt.Errorf("%d heads of %d elements: %w", a.Heads, a.HeadDim, tensor.ErrCorrupt)
	}
	if !positive(a.Scale) || !positive(a.Cap) || !positive(a.Clip) || a.Window < 0 || a.Chunk < 0 {
		return 0, 0, fmt.Errorf("scale %v, cap %v, clip %v, window %d, chunk %d: %w", a.Scale, a.Cap, a.Clip, a.Window, a.Chunk, tensor.ErrCorrupt)
	}
	if a.Slopes != nil && len(a.Slopes) != a.Heads {
		return 0, 0, fmt.Errorf("%d slopes of %d heads: %w", len(a.Slopes), a.Heads, tensor.ErrCorrupt)
	}
	for _, x := range a.Slopes {
		if !positive(math.Abs(x)) {
			return 0, 0, fmt.Errorf("slopes %v: %w", a.Slopes, tensor.ErrCorrupt)
		}
	}
	return int(query), int(query) / a.Heads * a.KVHeads, checkRope(a.Rope, a.HeadDim)
}

// checkRope demands a table for heads of dim elements; there may be none.
func checkRope(r *arch.Rope, dim int) error {
	if r == nil {
		return nil
	}
	if r.Dim > dim {
		return fmt.Errorf("rotation of %d elements of a head of %d: %w", r.Dim, dim, tensor.ErrCorrupt)
	}
	if !(r.Scale > 0) || !positive(r.Scale) || r.Original < 0 {
		return fmt.Errorf("a rotary table with factor %v from %d positions on: %w", r.Scale, r.Original, tensor.ErrCorrupt)
	}
	for i, list := range [][]float64{r.InvFreq, r.Long} {
		if i == 1 && list == nil {
			continue
		}
		if r.Dim < 0 || r.Dim%2 != 0 || len(list) != r.Dim/2 {
			return fmt.Errorf("%d rotary frequencies for %d elements: %w", len(list), r.Dim, tensor.ErrCorrupt)
		}
		for j, f := range list {
			if !(math.Abs(f) <= maxFrequency) {
				return fmt.Errorf("rotary frequency %d is %v: %w", j, f, tensor.ErrCorrupt)
			}
		}
	}
	return nil
}

// layerSlots lists the weights of a layer.
func (m *Model) layerSlots(l arch.Pair) ([]slot, error) {
	hidden, a, mlp := m.decoder.Hidden, l.Attention, l.MLP
	q, kv, err := checkAttention(a)
	if err != nil {
		return nil, err
	}
	if mlp.Intermediate < 1 || !positive(mlp.GateScale) || !positive(l.AttentionScale) || !positive(l.MLPScale) {
		return nil, fmt.Errorf("%d intermediate, gates times %v, branches times %v and %v: %w", mlp.Intermediate, mlp.GateScale, l.AttentionScale, l.MLPScale, tensor.ErrCorrupt)
	}
	slots := appendNorm(nil, "attention norm", l.AttentionNorm, hidden)
	slots = appendNorm(slots, "mlp norm", l.MLPNorm, hidden)
	slots = appendNorm(slots, "norm behind attention", l.AttentionPostNorm, hidden)
	slots = appendNorm(slots, "norm behind the mlp", l.MLPPostNorm, hidden)
	slots = appendNorm(slots, "query norm", a.QNorm, a.HeadDim, q)
	slots = appendNorm(slots, "key norm", a.KNorm, a.HeadDim, kv)
	slots = appendNorm(slots, "output norm", a.OutNorm, q)
	slots = appendNorm(slots, "mlp inner norm", mlp.Norm, mlp.Intermediate)
	slots = appendLinear(slots, "attention.q", &a.Q, q, hidden)
	slots = appendLinear(slots, "attention.k", &a.K, kv, hidden)
	slots = appendLinear(slots, "attention.v", &a.V, kv, hidden)
	if a.Gate.Weight.Tensor != "" {
		slots = appendLinear(slots, "attention.gate", &a.Gate, q, hidden)
	}
	slots = appendLinear(slots, "attention.o", &a.O, hidden, q)
	if mlp.Gate.Weight.Tensor != "" {
		slots = appendLinear(slots, "mlp.gate", &mlp.Gate, mlp.Intermediate, hidden)
	}
	slots = appendLinear(slots, "mlp.up", &mlp.Up, mlp.Intermediate, hidden)
	slots = appendLinear(slots, "mlp.down", &mlp.Down, hidden, mlp.Intermediate)
	switch mlp.Activation {
	case arch.SiLU, arch.GELU, arch.GELUTanh, arch.ReLU, arch.ReLU2:
	case arch.XIELU:
		for _, w := range mlp.XIELU {
			slots = append(slots, slot{"xielu", w, 1, 0})
		}
	default:
		return nil, fmt.Errorf("activation %q: %w", mlp.Activation, tensor.ErrUnsupported)
	}
	return slots, nil
}

// appendNorm adds the weights of a norm, which may be nil, of one of some lengths.
func appendNorm(slots []slot, name string, n *arch.Norm, lengths ...int) []slot {
	if n == nil {
		return slots
	}
	length := lengths[0]
	if slices.Contains(lengths, n.Gamma.Rows) {
		length = n.Gamma.Rows
	}
	slots = append(slots, slot{name, n.Gamma, length, 0})
	if n.Beta.Tensor != "" {
		slots = append(slots, slot{name + " beta", n.Beta, length, 0})
	}
	return slots
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
