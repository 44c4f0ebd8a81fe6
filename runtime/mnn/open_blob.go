package mnn

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Constant is the value of a Const op. Exactly one of Floats and Ints is used.
type Constant struct {
	Shape  []int
	Floats []float32
	Ints   []int32
}

// Open decodes the constant. Values that do not fill its shape are tensor.ErrCorrupt, types other than float32 and
// int32 tensor.ErrUnsupported.
func (p *Blob) Open(w Weights) (Constant, error) {
	c := Constant{Shape: make([]int, len(p.Dims)), Floats: p.Float32s, Ints: p.Int32s}
	shape := make(tensor.Shape, len(p.Dims))
	for k, d := range p.Dims {
		if d < 0 {
			return Constant{}, fmt.Errorf("constant of shape %v: %w", p.Dims, tensor.ErrCorrupt)
		}
		c.Shape[k], shape[k] = int(d), int64(d)
	}
	n, err := shape.Elements()
	if err != nil {
		return Constant{}, err
	}
	if p.DType == DTFloat && p.Float32s == nil && len(p.External) == 2 {
		b, err := w.Bytes(p.External[0], p.External[1])
		if err != nil {
			return Constant{}, err
		}
		c.Floats = Floats(b)
	}
	switch p.DType {
	case DTFloat:
		c.Ints = nil
		if int64(len(c.Floats)) != n {
			return Constant{}, fmt.Errorf("constant of shape %v has %d floats: %w", p.Dims, len(c.Floats), tensor.ErrCorrupt)
		}
	case DTInt32:
		c.Floats = nil
		if c.Ints == nil {
			c.Ints = []int32{}
		}
		if int64(len(c.Ints)) != n {
			return Constant{}, fmt.Errorf("constant of shape %v has %d integers: %w", p.Dims, len(c.Ints), tensor.ErrCorrupt)
		}
	default:
		return Constant{}, fmt.Errorf("constant of %v: %w", p.DType, tensor.ErrUnsupported)
	}
	return c, nil
}
