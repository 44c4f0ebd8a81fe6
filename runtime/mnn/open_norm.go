package mnn

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Norm32 returns the factors and offsets of a norm over the last axis, or over the channels of a packed tensor: gamma
// is nil if there are none, beta if there are none or all are 0. Other axes and groups are tensor.ErrUnsupported, lists
// of different lengths tensor.ErrCorrupt.
func (p *LayerNorm) Norm32(w Weights) (gamma, beta []float32, err error) {
	if len(p.Axis) > 1 || (len(p.Axis) == 1 && p.Axis[0] != -1) || p.Group > 1 {
		return nil, nil, fmt.Errorf("norm over axes %v in %d groups: %w", p.Axis, p.Group, tensor.ErrUnsupported)
	}
	gamma, beta = p.Gamma, p.Beta
	if len(p.External) >= 2 {
		b, err := w.Bytes(p.External[0], p.External[1])
		if err != nil {
			return nil, nil, err
		}
		gamma = Floats(b)
		if len(p.External) > 2 && p.External[2] > 0 {
			end, err := tensor.Add(p.External[0], p.External[1])
			if err != nil {
				return nil, nil, err
			}
			if b, err = w.Bytes(end, p.External[2]); err != nil {
				return nil, nil, err
			}
			beta = Floats(b)
		}
	}
	if !slices.ContainsFunc(beta, func(v float32) bool { return v != 0 }) {
		return gamma, nil, nil
	}
	if len(beta) != len(gamma) {
		return nil, nil, fmt.Errorf("norm of %d factors and %d offsets: %w", len(gamma), len(beta), tensor.ErrCorrupt)
	}
	return gamma, beta, nil
}

// RMS32 returns the factors of an RMSNorm as [LayerNorm.Norm32] does. Other norms, and offsets, are
// tensor.ErrUnsupported.
func (p *LayerNorm) RMS32(w Weights) (gamma []float32, err error) {
	if !p.RMS {
		return nil, fmt.Errorf("LayerNorm that is not an RMSNorm: %w", tensor.ErrUnsupported)
	}
	gamma, beta, err := p.Norm32(w)
	if err == nil && beta != nil {
		err = fmt.Errorf("RMSNorm with an offset: %w", tensor.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return gamma, nil
}
