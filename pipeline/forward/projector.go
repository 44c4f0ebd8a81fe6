package forward

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// checkProjector checks the matrices of a projector of cells of so many elements.
func (m *Model) checkProjector(p *arch.Projector, cell int) error {
	var err error
	for i := range p.Front {
		err = cmp.Or(err, m.checkLinear("matrix before the projector", &p.Front[i], p.Front[i].Weight.Rows, cell))
		cell = p.Front[i].Weight.Rows
	}
	return cmp.Or(err,
		m.checkNorm("norm of the projector", p.Norm, cell),
		m.checkLinear("projector", &p.In, p.In.Weight.Rows, cell),
		m.checkOptional(slot{"gate of the projector", &p.Gate, p.In.Weight.Rows, cell}),
		m.checkOptional(slot{"second matrix of the projector", &p.Out, p.Out.Weight.Rows, p.In.Weight.Rows}),
	)
}

// checkDeep checks what makes rows of states after layers.
func (m *Model) checkDeep(t *arch.Tower, cell int) error {
	for i := range t.Deep {
		d := &t.Deep[i]
		if !t.Grid || d.After < 0 || d.After >= len(t.Layers) || i > 0 && d.After <= t.Deep[i-1].After || d.Out.Weight.Rows != t.Out.Weight.Rows {
			return fmt.Errorf("rows of %d elements of the states after layer %d: %w", d.Out.Weight.Rows, d.After, tensor.ErrCorrupt)
		}
		if err := m.checkProjector(&d.Projector, cell); err != nil {
			return err
		}
	}
	return nil
}

// project turns the states of a picture, with those of a cell next to each other, into rows. It changes x.
func (t *Tower) project(ctx context.Context, p *arch.Projector, x []float32) (y []float32, err error) {
	if p.Planes {
		x = planes(x, t.tower.Cell*t.tower.Cell, t.tower.Hidden)
	}
	for i := range p.Front {
		if x, err = t.product(ctx, x, &p.Front[i]); err != nil {
			return nil, err
		}
	}
	if err := t.norm(x, p.Norm); err != nil {
		return nil, err
	}
	if p.Between != "" {
		(&activation{Activation: p.Between}).apply(x, x)
	}
	if y, err = t.product(ctx, x, &p.In); err != nil || p.Out.Weight.Tensor == "" {
		return y, err
	}
	act := &activation{Activation: p.Activation}
	if p.Gate.Weight.Tensor == "" {
		act.apply(y, y)
		return t.product(ctx, y, &p.Out)
	}
	gate, err := t.product(ctx, x, &p.Gate)
	if err != nil {
		return nil, err
	}
	act.apply(gate, gate)
	for i, g := range gate {
		y[i] *= g
	}
	return t.product(ctx, y, &p.Out)
}

// planes puts the elements of a channel next to each other, in cells of n rows of width elements.
func planes(x []float32, n, width int) []float32 {
	out := make([]float32, len(x))
	for cell := 0; cell < len(x); cell += n * width {
		for i := range n {
			for channel := range width {
				out[cell+channel*n+i] = x[cell+i*width+channel]
			}
		}
	}
	return out
}
