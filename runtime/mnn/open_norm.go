package mnn

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// RMS32 reads the factors of an RMSNorm over the last axis, or over the channels of a packed tensor. Norms of other kinds
// are tensor.ErrUnsupported.
func (p *LayerNorm) RMS32(w Weights) (gamma []float32, err error) {
	if !p.RMS {
		return nil, fmt.Errorf("LayerNorm that is no RMSNorm: %w", tensor.ErrUnsupported)
	}
	if len(p.Axis) > 1 || (len(p.Axis) == 1 && p.Axis[0] != -1) || p.Group > 1 {
		return nil, fmt.Errorf("norm over axes %v in %d groups: %w", p.Axis, p.Group, tensor.ErrUnsupported)
	}
	gamma, beta := p.Gamma, p.Beta
	if len(p.External) >= 2 {
		b, err := w.Bytes(p.External[0], p.External[1])
		if err != nil {
			return nil, err
		}
		gamma = Floats(b)
		if len(p.External) > 2 && p.External[2] > 0 {
			end, err := tensor.Add(p.External[0], p.External[1])
			if err != nil {
				return nil, err
			}
			if b, err = w.Bytes(end, p.External[2]); err != nil {
				return nil, err
			}
			beta = Floats(b)
		}
	}
	for _, v := range beta {
		if v != 0 {
			return nil, fmt.Errorf("RMSNorm with an offset: %w", tensor.ErrUnsupported)
		}
	}
	return gamma, nil
}
