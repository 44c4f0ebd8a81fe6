package forward

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// check requires a consistent description and a source with all tensors that it names, so that the computation never indexes out
// of range.
func (m *Model) check() error {
	d := m.decoder
	if len(d.Layers) < 1 || d.Hidden < 1 || d.Vocab < 1 {
		return fmt.Errorf("a decoder of %d layers, width %d and %d tokens: %w", len(d.Layers), d.Hidden, d.Vocab, tensor.ErrCorrupt)
	}
	err := cmp.Or(m.checkWeight("embedding", d.Embedding, d.Vocab, d.Hidden), m.checkNorm("embedding norm", d.EmbeddingNorm, d.Hidden))
	if err != nil {
		return err
	}
	if d.NormLast && (d.EmbeddingNorm == nil || d.EmbeddingScale != 0) {
		return fmt.Errorf("no norm after the positions, or a factor: %w", tensor.ErrCorrupt)
	}
	if d.Positions.Tensor != "" {
		if d.FirstPosition < 0 || d.MaxPositions < 1 {
			return fmt.Errorf("%d learned positions from row %d on: %w", d.MaxPositions, d.FirstPosition, tensor.ErrCorrupt)
		}
		if err := m.checkWeight("positions", d.Positions, d.FirstPosition+d.MaxPositions, d.Hidden); err != nil {
			return err
		}
	}
	for _, f := range []float64{d.EmbeddingScale, d.LogitScale, d.LogitCap} {
		if !finite(f, 0) {
			return fmt.Errorf("embeddings times %v, logits times %v within %v: %w",
				d.EmbeddingScale, d.LogitScale, d.LogitCap, tensor.ErrCorrupt)
		}
	}
	if !d.NormLast && d.Segment.Tensor != "" {
		return fmt.Errorf("a vector of the segment without a norm after it: %w", tensor.ErrCorrupt)
	}
	if err := cmp.Or(m.checkVector("segment", d.Segment, d.Hidden), m.checkPerLayer(), m.checkLayers()); err != nil {
		return err
	}
	if d.Pooling != nil {
		return m.checkPooling()
	}
	return cmp.Or(m.checkNorm("final norm", &d.FinalNorm, d.Hidden), m.checkLinear("head", &d.Head, d.Vocab, d.Hidden))
}

func (m *Model) checkLayers() error {
	for i, l := range m.decoder.Layers {
		layer, err := m.checkLayer(l)
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		m.layers = append(m.layers, layer)
	}
	if m.decoder.Side > 0 {
		m.cost.token += m.decoder.Width() // of the parts of states
	}
	return nil
}

func (m *Model) checkLayer(l arch.Layer) ([]branch, error) {
	layer := make([]branch, 0, len(l))
	for i, b := range l {
		if b.Parallel && i == 0 {
			return nil, fmt.Errorf("the first branch is parallel to none: %w", tensor.ErrCorrupt)
		}
		if b.Parallel && l[i-1].SumNorm != nil {
			return nil, fmt.Errorf("branch %d is parallel to one with a norm of the stream: %w", i, tensor.ErrCorrupt)
		}
		part, err := m.checkBranch(i, b)
		if err := cmp.Or(err, m.checkVector(fmt.Sprintf("gain of branch %d", i), b.Gain, 1)); err != nil {
			return nil, err
		}
		c := part.cost(m.decoder.Hidden)
		if b.Parallel || i+1 < len(l) && l[i+1].Parallel {
			c.token += m.decoder.Hidden // a copy of the stream for both branches
		}
		m.cost = m.cost.max(c)
		layer = append(layer, part)
	}
	return layer, nil
}

func (m *Model) checkBranch(i int, b arch.Branch) (branch, error) {
	if !finite(b.Scale, math.Inf(-1)) {
		return branch{}, fmt.Errorf("branch %d is multiplied by %v: %w", i, b.Scale, tensor.ErrCorrupt)
	}
	for _, n := range []*arch.Norm{b.Norm, b.PostNorm, b.SumNorm} {
		if err := m.checkNorm(fmt.Sprintf("norm of branch %d", i), n, m.decoder.Hidden); err != nil {
			return branch{}, err
		}
	}
	if err := m.checkVector(fmt.Sprintf("factors of branch %d", i), b.Factors, m.decoder.Hidden); err != nil {
		return branch{}, err
	}
	block, err := newBlock(b.Block)
	if err == nil {
		err = block.check(m)
	}
	return branch{b, block}, err
}

// checkNorm requires a norm of one of several sizes, if there is one.
func (m *Model) checkNorm(slot string, n *arch.Norm, sizes ...int) error {
	if n == nil {
		return nil
	}
	size := sizes[0]
	if slices.Contains(sizes, n.Gamma.Rows) {
		size = n.Gamma.Rows
	}
	if err := m.checkWeight(slot, n.Gamma, size, 0); err != nil {
		return err
	}
	if n.Parts < 0 || n.Parts > 1 && size%n.Parts != 0 {
		return fmt.Errorf("%s: %d parts of %d elements: %w", slot, n.Parts, size, tensor.ErrCorrupt)
	}
	if !finite(n.Eps, 0) {
		return fmt.Errorf("%s: epsilon %v: %w", slot, n.Eps, tensor.ErrCorrupt)
	}
	if n.Beta.Tensor != "" && !n.Centered {
		return fmt.Errorf("%s: RMSNorm with a bias: %w", slot, tensor.ErrUnsupported)
	}
	return m.checkVector(slot+" bias", n.Beta, size)
}

// checkLinear requires a linear layer, and records its matrix.
func (m *Model) checkLinear(slot string, l *arch.Linear, rows, cols int) error {
	if err := m.checkWeight(slot, l.Weight, rows, cols); err != nil {
		return err
	}
	m.addMatrix(l.Weight)
	if c := l.Clip; c != nil {
		if m.decoder.Vocab > 0 {
			return fmt.Errorf("%s: bounds outside of a tower: %w", slot, tensor.ErrUnsupported)
		}
		for _, w := range []arch.Weight{c.InLow, c.InHigh, c.OutLow, c.OutHigh} {
			if err := m.checkWeight(slot+" bounds", w, 1, 0); err != nil {
				return err
			}
		}
	}
	return m.checkVector(slot+" bias", l.Bias, rows)
}

// slot is a linear layer of a block, with the shape it must have.
type slot struct {
	name       string
	linear     *arch.Linear
	rows, cols int
}

func (m *Model) checkLinears(slots ...slot) error {
	for _, s := range slots {
		if err := m.checkLinear(s.name, s.linear, s.rows, s.cols); err != nil {
			return err
		}
	}
	return nil
}

// checkOptional is checkLinears for the slots that have a tensor.
func (m *Model) checkOptional(slots ...slot) error {
	return m.checkLinears(slices.DeleteFunc(slots, func(s slot) bool { return s.linear.Weight.Tensor == "" })...)
}

// checkVector requires a vector of n elements, if it has a tensor.
func (m *Model) checkVector(slot string, w arch.Weight, n int) error {
	if w.Tensor == "" {
		return nil
	}
	return m.checkWeight(slot, w, n, 0)
}

// checkWeight compares a slot with what the computation needs and with the tensor of the source.
func (m *Model) checkWeight(slot string, w arch.Weight, rows, cols int) error {
	if w.Rows != rows || w.Cols != cols {
		return fmt.Errorf("%s: the description says %d x %d, the computation needs %d x %d: %w",
			slot, w.Rows, w.Cols, rows, cols, tensor.ErrCorrupt)
	}
	info, ok := m.infos[w.Tensor]
	if !ok {
		return fmt.Errorf("%s: the checkpoint has no tensor %q: %w", slot, w.Tensor, tensor.ErrCorrupt)
	}
	shape := tensor.Shape{int64(rows)}
	if cols > 0 {
		shape = append(shape, int64(cols))
	} else {
		m.weights.All += 4 * int64(rows)
	}
	if !slices.Equal(info.Shape, shape) {
		return fmt.Errorf("%s: %s has shape %v, not %v: %w", slot, w.Tensor, info.Shape, shape, tensor.ErrCorrupt)
	}
	if err := widen(nil, nil, info.DType); err != nil {
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
