package ops

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// CastInts reports whether a Cast gives integers; other types than float32, int32 and booleans, which are int32, are
// tensor.ErrUnsupported.
func CastInts(p *mnn.Cast) (bool, error) {
	switch p.To {
	case mnn.DTInt32, mnn.DTBool:
		return true, nil
	case mnn.DTFloat:
		return false, nil
	}
	return false, fmt.Errorf("cast to %v: %w", p.To, tensor.ErrUnsupported)
}

// ToFloats writes x, each rounded once, to dst.
func ToFloats(dst []float32, x []int32) {
	for i, v := range x {
		dst[i] = float32(v)
	}
}

// ToInts writes x without its fraction to dst. Values that an int32 does not hold become the lowest one, as on x86.
func ToInts(dst []int32, x []float32) {
	for i, v := range x {
		if v > -0x1p31 && v < 0x1p31 {
			dst[i] = int32(v)
		} else {
			dst[i] = math.MinInt32
		}
	}
}

// ToBools writes 1 to dst where x is not 0, and 0 elsewhere.
func ToBools(dst, x []int32) {
	for i, v := range x {
		dst[i] = 0
		if v != 0 {
			dst[i] = 1
		}
	}
}

func runCast(p *mnn.Cast, x Tensor) (Tensor, error) {
	toInts, err := CastInts(p)
	switch {
	case err != nil:
		return Tensor{}, err
	case p.To == mnn.DTBool && x.Ints == nil:
		// The engine looks at the bits.
		return Tensor{}, fmt.Errorf("cast of floats to %v: %w", p.To, tensor.ErrUnsupported)
	case p.To == mnn.DTBool:
		out := make([]int32, len(x.Ints))
		ToBools(out, x.Ints)
		return NewInts(out, x.Shape...), nil
	case toInts && x.Ints == nil:
		out := make([]int32, len(x.Floats))
		ToInts(out, x.Floats)
		return NewInts(out, x.Shape...), nil
	case !toInts && x.Ints != nil:
		out := NewFloats(x.Shape...)
		ToFloats(out.Floats, x.Ints)
		return out, nil
	}
	return x, nil
}

// runRange counts from the first input to before the second in steps of the third.
func runRange(in []Tensor) (Tensor, error) {
	var arg [3]int64
	for k := range arg {
		v, err := in[k].integers()
		if err != nil {
			return Tensor{}, err
		}
		if len(v) != 1 {
			return Tensor{}, fmt.Errorf("range by %d integers: %w", len(v), tensor.ErrCorrupt)
		}
		arg[k] = int64(v[0])
	}
	from, to, step := arg[0], arg[1], arg[2]
	if step == 0 {
		return Tensor{}, fmt.Errorf("range with a step of 0: %w", tensor.ErrCorrupt)
	}
	n := (to - from) / step
	if (to-from)%step != 0 {
		n++
	}
	if (to < from) != (step < 0) || to == from {
		n = 0
	}
	if n > maxRange {
		return Tensor{}, fmt.Errorf("range of %d: %w", n, tensor.ErrUnsupported)
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(from + int64(i)*step)
	}
	return NewInts(out, len(out)), nil
}

// maxRange bounds a range, which counts positions.
const maxRange = 1 << 24
