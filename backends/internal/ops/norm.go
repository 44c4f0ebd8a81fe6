package ops

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Norm is a compiled LayerNorm: RMSNorm, or with Beta the one that subtracts the mean.
type Norm struct {
	Gamma, Beta []float32
	Eps         float32
	// Packed: the tensor is [tokens, channels, 1, 1] and the norm runs over channels. Either way the normalised elements
	// are adjacent here.
	Packed bool
	half   bool
	// Arm computes an RMSNorm as the engine does on arm64.
	Arm bool
}

// OpenNorm compiles a LayerNorm.
func OpenNorm(op *mnn.Op, p *mnn.LayerNorm, w mnn.Weights, o *backend.Options) (*Norm, error) {
	n := &Norm{Eps: p.Epsilon, Packed: op.Format == mnn.DimNC4HW4, half: o.Half, Arm: o.Arm != 0}
	var err error
	if n.Gamma, n.Beta, err = p.Norm32(w); err != nil {
		return nil, err
	}
	if o.Replace != nil {
		gamma, beta, err := o.Replace(op)
		if err != nil {
			return nil, err
		}
		if gamma != nil {
			if n.Gamma, err = gamma.All(); err != nil {
				return nil, err
			}
		}
		if beta != nil {
			n.Beta = beta
		}
	}
	if len(n.Gamma) == 0 {
		return nil, fmt.Errorf("norm without gamma: %w", tensor.ErrUnsupported)
	}
	switch {
	case p.RMS && slices.ContainsFunc(n.Beta, func(v float32) bool { return v != 0 }):
		return nil, fmt.Errorf("RMSNorm with an offset: %w", tensor.ErrUnsupported)
	case p.RMS:
		n.Beta = nil
	case n.Beta == nil:
		n.Beta = make([]float32, len(n.Gamma))
	case len(n.Beta) != len(n.Gamma):
		return nil, fmt.Errorf("norm of %d factors and %d offsets: %w", len(n.Gamma), len(n.Beta), tensor.ErrCorrupt)
	}
	return n, nil
}

// Check refuses tensors that the norm does not fit.
func (n *Norm) Check(shape []int) error {
	w := len(n.Gamma)
	ok := len(shape) > 0 && shape[len(shape)-1] == w
	if n.Packed {
		ok = len(shape) == 4 && shape[1] == w && shape[2] == 1 && shape[3] == 1
	}
	if !ok {
		return fmt.Errorf("norm over %d of shape %v: %w", w, shape, tensor.ErrCorrupt)
	}
	return nil
}

// Rows normalises rows of a tensor of all rows.
func (n *Norm) Rows(dst, x []float32, all int) {
	rows, packed := len(x)/len(n.Gamma), n.Packed && all > 1
	switch {
	case n.half:
		kernel.HalfNormRows(dst, x, n.Gamma, n.Beta, n.Eps)
	case n.Beta != nil && packed:
		kernel.EngineLayerNormPackedRows(dst, x, n.Gamma, n.Beta, rows, n.Eps)
	case n.Beta != nil:
		kernel.EngineLayerNormRows(dst, x, n.Gamma, n.Beta, rows, n.Eps)
	case n.Arm:
		kernel.ArmRMSNormRows(dst, x, n.Gamma, rows, packed, n.Eps)
	case packed:
		kernel.EngineRMSNormPackedRows(dst, x, n.Gamma, rows, n.Eps)
	default:
		kernel.EngineRMSNormRows(dst, x, n.Gamma, rows, n.Eps)
	}
}

// Run normalises a tensor.
func (n *Norm) Run(x Tensor, threads int) (Tensor, error) {
	if x.Ints != nil {
		return Tensor{}, fmt.Errorf("norm of integers: %w", tensor.ErrCorrupt)
	}
	if err := n.Check(x.Shape); err != nil {
		return Tensor{}, err
	}
	out, w := NewFloats(x.Shape...), len(n.Gamma)
	all := len(x.Floats) / w
	kernel.Parallel(threads, all, func(lo, hi int) { n.Rows(out.Floats[lo*w:hi*w], x.Floats[lo*w:hi*w], all) })
	return out, nil
}
