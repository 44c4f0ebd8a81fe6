package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// SoftmaxWidth is the length of the rows that a Softmax op takes apart. Only the last axis is supported.
func SoftmaxWidth(p *mnn.Axis, shape []int) (int, error) {
	last := len(shape) - 1
	if last < 0 || int(p.Axis) < -len(shape) || int(p.Axis) > last {
		return 0, fmt.Errorf("softmax along axis %d of shape %v: %w", p.Axis, shape, tensor.ErrCorrupt)
	}
	if int(p.Axis) != -1 && int(p.Axis) != last {
		return 0, fmt.Errorf("softmax along axis %d of shape %v: %w", p.Axis, shape, tensor.ErrUnsupported)
	}
	if shape[last] == 0 {
		return 0, fmt.Errorf("softmax of nothing: %w", tensor.ErrCorrupt)
	}
	return shape[last], nil
}

func runSoftmax(p *mnn.Axis, x Tensor, threads int) (Tensor, error) {
	if x.Ints != nil {
		return Tensor{}, fmt.Errorf("softmax of integers: %w", tensor.ErrUnsupported)
	}
	width, err := SoftmaxWidth(p, x.Shape)
	if err != nil {
		return Tensor{}, err
	}
	out := NewFloats(x.Shape...)
	kernel.Parallel(threads, len(x.Floats)/width, func(lo, hi int) {
		kernel.EngineSoftmaxRows(out.Floats[lo*width:hi*width], x.Floats[lo*width:hi*width], width)
	})
	return out, nil
}
