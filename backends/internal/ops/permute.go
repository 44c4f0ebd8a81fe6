package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Permutation moves the elements of a tensor to where they are when its dimensions are reordered.
type Permutation struct {
	// Shape of the output.
	Shape []int
	// Still is set if no element moves: the dimensions that change places have length 1.
	Still   bool
	strides []int // of the input, by output dimension
}

// NewPermutation prepares a Permute of a tensor of this shape.
func NewPermutation(p *mnn.Permute, shape []int) (*Permutation, error) {
	n := len(shape)
	if len(p.Dims) != n {
		return nil, fmt.Errorf("permute %v of shape %v: %w", p.Dims, shape, tensor.ErrCorrupt)
	}
	steps, step := make([]int, n), 1
	for k := n - 1; k >= 0; k-- {
		steps[k] = step
		step *= shape[k]
	}
	out := &Permutation{Shape: make([]int, n), Still: true, strides: make([]int, n)}
	seen, last := make([]bool, n), -1
	for k, d := range p.Dims {
		if d < 0 {
			d += int32(n)
		}
		if d < 0 || int(d) >= n || seen[d] {
			return nil, fmt.Errorf("permute %v of shape %v: %w", p.Dims, shape, tensor.ErrCorrupt)
		}
		seen[d] = true
		out.Shape[k], out.strides[k] = shape[d], steps[d]
		if shape[d] != 1 {
			out.Still = out.Still && int(d) > last
			last = int(d)
		}
	}
	return out, nil
}

// Parts is how many pieces there are for Permuted: matrices of the last two dimensions.
func (p *Permutation) Parts() int { return Count(p.Shape[:max(0, len(p.Shape)-2)]) }

// Permuted writes parts lo to hi-1 of the permuted x to dst, which holds all of them.
func Permuted[T any](p *Permutation, dst, x []T, lo, hi int) {
	n := len(p.Shape)
	if n < 2 {
		copy(dst, x)
		return
	}
	rows, cols, down, along := p.Shape[n-2], p.Shape[n-1], p.strides[n-2], p.strides[n-1]
	for part := lo; part < hi; part++ {
		from, rest := 0, part
		for k := n - 3; k >= 0; k-- {
			from += rest % p.Shape[k] * p.strides[k]
			rest /= p.Shape[k]
		}
		for r := range rows {
			out, at := dst[(part*rows+r)*cols:][:cols], from+r*down
			if along == 1 {
				copy(out, x[at:])
				continue
			}
			for c := range out {
				out[c] = x[at]
				at += along
			}
		}
	}
}

func runPermute(p *mnn.Permute, in []Tensor) (Tensor, error) {
	x := in[0]
	m, err := NewPermutation(p, x.Shape)
	if err != nil {
		return Tensor{}, err
	}
	out := Tensor{Shape: m.Shape}
	if x.Ints != nil {
		out.Ints = make([]int32, len(x.Ints))
		Permuted(m, out.Ints, x.Ints, 0, m.Parts())
		return out, nil
	}
	out.Floats = make([]float32, len(x.Floats))
	Permuted(m, out.Floats, x.Floats, 0, m.Parts())
	return out, nil
}
