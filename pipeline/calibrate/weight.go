package calibrate

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// weight is an opened tensor. It is safe for concurrent use.
type weight struct {
	name  string
	dtype tensor.DType
	r     *io.SectionReader
}

// open opens the tensor of a slot and checks its shape.
func open(src tensor.Source, w arch.Weight) (*weight, error) {
	infos := src.Tensors()
	i := slices.IndexFunc(infos, func(t tensor.Info) bool { return t.Name == w.Tensor })
	if i < 0 {
		return nil, fmt.Errorf("no tensor %s: %w", w.Tensor, tensor.ErrCorrupt)
	}
	t := infos[i]
	shape := tensor.Shape{int64(w.Rows), int64(w.Cols)}
	if w.Cols == 0 {
		shape = shape[:1]
	}
	if !slices.Equal(t.Shape, shape) {
		return nil, fmt.Errorf("%s: shape %s instead of %s: %w", w.Tensor, t.Shape, shape, tensor.ErrCorrupt)
	}
	if !t.DType.Float() {
		return nil, fmt.Errorf("%s: weights of type %s: %w", w.Tensor, t.DType, tensor.ErrUnsupported)
	}
	r, err := src.Open(w.Tensor)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Tensor, err)
	}
	return &weight{w.Tensor, t.DType, r}, nil
}

// read widens len(dst) elements from the given one on.
func (w *weight) read(dst []float32, first int64) error {
	size := w.dtype.Size()
	raw := make([]byte, int64(len(dst))*size)
	n, err := w.r.ReadAt(raw, first*size)
	switch {
	case n == len(raw): // with or without io.EOF
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%s: ends within element %d: %w", w.name, first+int64(n)/size, tensor.ErrCorrupt)
	default:
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if err := kernel.ToF32(dst, raw, w.dtype); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}
