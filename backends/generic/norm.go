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
	if !p.RMS {
		return nil, fmt.Errorf("LayerNorm that is no RMSNorm: %w", tensor.ErrUnsupported)
	}
	if len(p.Axis) > 1 || (len(p.Axis) == 1 && p.Axis[0] != -1) || p.Group > 1 {
		return nil, fmt.Errorf("norm over axes %v in %d groups: %w", p.Axis, p.Group, tensor.ErrUnsupported)
	}
	n := &norm{gamma: p.Gamma, eps: p.Epsilon, packed: op.Format == mnn.DimNC4HW4}
	beta := p.Beta
	if len(p.External) >= 2 {
		g, err := w.Bytes(p.External[0], p.External[1])
		if err != nil {
			return nil, err
		}
		n.gamma = mnn.Floats(g)
		if len(p.External) > 2 && p.External[2] > 0 {
			end, err := tensor.Add(p.External[0], p.External[1])
			if err != nil {
				return nil, err
			}
			b, err := w.Bytes(end, p.External[2])
			if err != nil {
				return nil, err
			}
			beta = mnn.Floats(b)
		}
	}
	for _, v := range beta {
		if v != 0 {
			return nil, fmt.Errorf("RMSNorm with an offset: %w", tensor.ErrUnsupported)
		}
	}
	if replace != nil {
		n.gamma = replace
	}
	if len(n.gamma) == 0 {
		return nil, fmt.Errorf("norm without gamma: %w", tensor.ErrUnsupported)
	}
	return n, nil
}

func (n *norm) run(x value, m *arithmetic, threads int) (value, error) {
	w := len(n.gamma)
	ok := len(x.shape) > 0 && x.shape[len(x.shape)-1] == w
	if n.packed {
		ok = len(x.shape) == 4 && x.shape[1] == w && x.shape[2] == 1 && x.shape[3] == 1
	}
	if !ok || x.i != nil {
		return value{}, fmt.Errorf("norm over %d of shape %v: %w", w, x.shape, tensor.ErrCorrupt)
	}
	out := floats(x.shape...)
	rmsNorm := m.rmsNorm
	if n.packed && len(x.f) > w {
		rmsNorm = m.rmsNormPacked
	}
	kernel.Parallel(threads, len(x.f)/w, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			rmsNorm(out.f[r*w:(r+1)*w], x.f[r*w:(r+1)*w], n.gamma, n.eps)
		}
	})
	return out, nil
}
