package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// The ops of this file move elements and change shapes; they compute nothing.

func runReshape(p *mnn.Reshape, in []Tensor) (Tensor, error) {
	dims := p.Dims
	if len(in) > 1 {
		var err error
		if dims, err = in[1].integers(); err != nil {
			return Tensor{}, err
		}
	}
	x, shape, infer, n := in[0], make([]int, len(dims)), -1, 1
	for k, d := range dims {
		switch {
		case d == -1 && infer < 0:
			infer = k
			continue
		case d == 0 && k < len(x.Shape):
			d = int32(x.Shape[k])
		case d < 0 || d == 0:
			return Tensor{}, fmt.Errorf("reshape %v to %v: %w", x.Shape, dims, tensor.ErrCorrupt)
		}
		shape[k] = int(d)
		n *= int(d)
		if n > 1<<40 {
			return Tensor{}, fmt.Errorf("reshape %v to %v: %w", x.Shape, dims, tensor.ErrCorrupt)
		}
	}
	total := x.elements()
	if infer >= 0 {
		if n == 0 || total%n != 0 {
			return Tensor{}, fmt.Errorf("reshape %v to %v: %w", x.Shape, dims, tensor.ErrCorrupt)
		}
		shape[infer] = total / n
		n = total
	}
	if n != total {
		return Tensor{}, fmt.Errorf("reshape %v to %v: %w", x.Shape, dims, tensor.ErrCorrupt)
	}
	return x.With(shape), nil
}

// runSqueeze removes dimensions of length 1, all of them when none is named.
func runSqueeze(p *mnn.Squeeze, in []Tensor) (Tensor, error) {
	axes, err := squeezeAxes(p, in)
	if err != nil {
		return Tensor{}, err
	}
	x := in[0]
	drop := make([]bool, len(x.Shape))
	for _, a := range axes {
		k, err := x.axis(int(a))
		if err != nil {
			return Tensor{}, err
		}
		if x.Shape[k] != 1 {
			return Tensor{}, fmt.Errorf("squeeze of dimension %d of %v: %w", k, x.Shape, tensor.ErrCorrupt)
		}
		drop[k] = true
	}
	shape := []int{}
	for k, d := range x.Shape {
		if drop[k] || (len(axes) == 0 && d == 1) {
			continue
		}
		shape = append(shape, d)
	}
	return x.With(shape), nil
}

func runUnsqueeze(p *mnn.Squeeze, in []Tensor) (Tensor, error) {
	axes, err := squeezeAxes(p, in)
	if err != nil {
		return Tensor{}, err
	}
	shape := slices.Clone(in[0].Shape)
	for _, a := range axes {
		k := int(a)
		if k < 0 {
			k += len(shape) + 1
		}
		if k < 0 || k > len(shape) || len(shape) > 8 {
			return Tensor{}, fmt.Errorf("unsqueeze at %d of %v: %w", a, in[0].Shape, tensor.ErrCorrupt)
		}
		shape = slices.Insert(shape, k, 1)
	}
	return in[0].With(shape), nil
}

func squeezeAxes(p *mnn.Squeeze, in []Tensor) ([]int32, error) {
	if p != nil && p.Dims != nil {
		return p.Dims, nil
	}
	if len(in) < 2 {
		return nil, nil
	}
	return in[1].integers()
}

func runShape(in []Tensor) Tensor {
	s := make([]int32, len(in[0].Shape))
	for k, d := range in[0].Shape {
		s[k] = int32(d)
	}
	return NewInts(s, len(s))
}

func runRank(in []Tensor) Tensor { return NewInts([]int32{int32(len(in[0].Shape))}) }

func runConcat(p *mnn.Axis, in []Tensor) (Tensor, error) {
	axis, err := in[0].axis(int(p.Axis))
	if err != nil {
		return Tensor{}, err
	}
	n := 0
	for _, x := range in {
		if len(x.Shape) != len(in[0].Shape) || (x.Ints == nil) != (in[0].Ints == nil) {
			return Tensor{}, fmt.Errorf("concat of %v and %v: %w", in[0].Shape, x.Shape, tensor.ErrCorrupt)
		}
		for k := range x.Shape {
			if k != axis && x.Shape[k] != in[0].Shape[k] {
				return Tensor{}, fmt.Errorf("concat of %v and %v: %w", in[0].Shape, x.Shape, tensor.ErrCorrupt)
			}
		}
		n += x.Shape[axis]
	}
	out := Tensor{Shape: replaceDim(in[0].Shape, axis, n)}
	if err := Limited(out.Shape); err != nil {
		return Tensor{}, err
	}
	outer, _, inner := in[0].spans(axis)
	for o := range outer {
		for _, x := range in {
			w := x.Shape[axis] * inner
			if x.Ints != nil {
				out.Ints = append(out.Ints, x.Ints[o*w:(o+1)*w]...)
			} else {
				out.Floats = append(out.Floats, x.Floats[o*w:(o+1)*w]...)
			}
		}
	}
	return out, nil
}

func runGather(in []Tensor) (Tensor, error) {
	if len(in) < 2 {
		return Tensor{}, fmt.Errorf("gather has %d inputs: %w", len(in), tensor.ErrCorrupt)
	}
	table, axis := in[0], 0
	idx, err := in[1].integers()
	if err != nil {
		return Tensor{}, err
	}
	if len(in) > 2 {
		a, err := in[2].integers()
		if err != nil || len(a) != 1 {
			return Tensor{}, fmt.Errorf("gather axis: %w", tensor.ErrCorrupt)
		}
		axis = int(a[0])
	}
	if axis, err = table.axis(axis); err != nil {
		return Tensor{}, err
	}
	rows := make([]int, len(idx))
	for k, v := range idx {
		if v < 0 || int(v) >= table.Shape[axis] {
			return Tensor{}, fmt.Errorf("gather of row %d of %d: %w", v, table.Shape[axis], tensor.ErrCorrupt)
		}
		rows[k] = int(v)
	}
	shape := replaceDim(table.Shape, axis, in[1].Shape...)
	if err := Limited(shape); err != nil {
		return Tensor{}, err
	}
	return table.Pick(axis, rows, shape), nil
}

// runStridedSlice covers ONNX Slice (begin, end, axes, steps) and TensorFlow's form (begin, end, strides) with
// positive steps and without masks.
func runStridedSlice(p *mnn.StridedSlice, in []Tensor) (Tensor, error) {
	if p.BeginMask|p.EndMask|p.EllipsisMask|p.NewAxisMask|p.ShrinkAxisMask != 0 {
		return Tensor{}, fmt.Errorf("strided slice with masks: %w", tensor.ErrUnsupported)
	}
	var arg [4][]int32
	for k := 1; k < len(in) && k < 5; k++ {
		v, err := in[k].integers()
		if err != nil {
			return Tensor{}, err
		}
		arg[k-1] = v
	}
	begin, end, axes, steps := arg[0], arg[1], arg[2], arg[3]
	if p.FromType == 0 {
		axes, steps = nil, arg[2]
	}
	if axes == nil {
		for k := range begin {
			axes = append(axes, int32(k))
		}
	}
	if len(begin) != len(axes) || len(end) != len(axes) || (steps != nil && len(steps) != len(axes)) {
		return Tensor{}, fmt.Errorf("strided slice with %d, %d, %d, %d arguments: %w", len(begin), len(end), len(axes), len(steps), tensor.ErrCorrupt)
	}
	x := in[0]
	for k := range axes {
		axis, err := x.axis(int(axes[k]))
		if err != nil {
			return Tensor{}, err
		}
		n, step := x.Shape[axis], 1
		if steps != nil {
			step = int(steps[k])
		}
		if step <= 0 {
			return Tensor{}, fmt.Errorf("strided slice with step %d: %w", step, tensor.ErrUnsupported)
		}
		lo, hi := clampIndex(int(begin[k]), n), clampIndex(int(end[k]), n)
		if lo == 0 && hi == n && step == 1 {
			continue
		}
		var idx []int
		for j := lo; j < hi; j += step {
			idx = append(idx, j)
		}
		x = x.Pick(axis, idx, replaceDim(x.Shape, axis, len(idx)))
	}
	return x, nil
}

func clampIndex(v, n int) int {
	if v < 0 {
		v += n
	}
	return max(0, min(v, n))
}
