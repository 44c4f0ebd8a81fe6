package generic

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// norm is a compiled RMSNorm.
type norm struct {
	gamma []float32
	eps   float32
	// packed: the tensor is [tokens, channels, 1, 1] and the norm runs over channels. Either way the
	// normalised elements are adjacent here.
	packed bool
}

func compileNorm(op *mnn.Op, p *mnn.LayerNorm, w mnn.Weights, replace []float32) (*norm, error) {
	gamma, err := p.RMS32(w)
	if err != nil {
		return nil, err
	}
	if replace != nil {
		gamma = replace
	}
	if len(gamma) == 0 {
		return nil, fmt.Errorf("norm without gamma: %w", tensor.ErrUnsupported)
	}
	return &norm{gamma: gamma, eps: p.Epsilon, packed: op.Format == mnn.DimNC4HW4}, nil
}

func (n *norm) run(x value, threads int) (value, error) {
	w := len(n.gamma)
	ok := len(x.shape) > 0 && x.shape[len(x.shape)-1] == w
	if n.packed {
		ok = len(x.shape) == 4 && x.shape[1] == w && x.shape[2] == 1 && x.shape[3] == 1
	}
	if !ok || x.i != nil {
		return value{}, fmt.Errorf("norm over %d of shape %v: %w", w, x.shape, tensor.ErrCorrupt)
	}
	out := floats(x.shape...)
	rmsNorm := kernel.EngineRMSNorm
	if n.packed && len(x.f) > w {
		rmsNorm = kernel.EngineRMSNormPacked
	}
	kernel.Parallel(threads, len(x.f)/w, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			rmsNorm(out.f[r*w:(r+1)*w], x.f[r*w:(r+1)*w], n.gamma, n.eps)
		}
	})
	return out, nil
}
