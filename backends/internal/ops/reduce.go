package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Fold is a Reduction: one pass after the other, each over the middle one of three dimensions, as the engine does it for
// groups of adjacent dimensions.
type Fold struct {
	// Shape of the output.
	Shape  []int
	passes []foldPass
	f      func(dst, x []float32, outer, n, inner int)
}

type foldPass struct{ outer, n, inner int }

var folds = map[mnn.ReductionOp]func(dst, x []float32, outer, n, inner int){
	mnn.ReduceSum: kernel.EngineSumAxis, mnn.ReduceMean: kernel.EngineMeanAxis, mnn.ReduceMaximum: kernel.EngineMaxAxis,
}

// NewFold prepares a Reduction of a tensor of this shape; no Dims stand for all of them.
func NewFold(p *mnn.Reduction, shape []int) (*Fold, error) {
	f := &Fold{f: folds[p.Op]}
	if f.f == nil {
		return nil, fmt.Errorf("%v: %w", p.Op, tensor.ErrUnsupported)
	}
	if Count(shape) == 0 {
		return nil, fmt.Errorf("reduction of shape %v: %w", shape, tensor.ErrUnsupported)
	}
	folded := make([]bool, len(shape))
	for _, d := range p.Dims {
		a, err := Tensor{Shape: shape}.axis(int(d))
		if err != nil {
			return nil, err
		}
		folded[a] = true
	}
	if len(p.Dims) == 0 {
		for k := range folded {
			folded[k] = true
		}
	}
	left := slices.Clone(shape)
	for k := 0; k < len(shape); k++ {
		n, from := 1, k
		for ; k < len(shape) && folded[k]; k++ {
			n *= shape[k]
			left[k] = 1
		}
		if k > from && n > 1 {
			f.passes = append(f.passes, foldPass{Count(left[:from]), n, Count(left[k:])})
		}
	}
	if len(f.passes) == 0 {
		f.passes = []foldPass{{1, 1, Count(shape)}}
	}
	f.Shape = []int{}
	for k, d := range left {
		if !folded[k] || p.Keep {
			f.Shape = append(f.Shape, d)
		}
	}
	return f, nil
}

// Do fills out, which has as many elements as Shape says.
func (f *Fold) Do(out, x []float32) {
	for k, s := range f.passes {
		dst := out
		if k+1 < len(f.passes) {
			dst = make([]float32, s.outer*s.inner)
		}
		f.f(dst, x, s.outer, s.n, s.inner)
		x = dst
	}
}

func runReduction(p *mnn.Reduction, in []Tensor) (Tensor, error) {
	if len(in) != 1 || in[0].Ints != nil {
		return Tensor{}, fmt.Errorf("reduction of integers, or over dimensions that are an input: %w", tensor.ErrUnsupported)
	}
	f, err := NewFold(p, in[0].Shape)
	if err != nil {
		return Tensor{}, err
	}
	out := NewFloats(f.Shape...)
	f.Do(out.Floats, in[0].Floats)
	return out, nil
}
