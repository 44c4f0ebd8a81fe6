package mnn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

func (p *Permute) check() error {
	if len(p.Dims) == 0 {
		return fmt.Errorf("dims are missing: %w", tensor.ErrUnsupported)
	}
	for k := range p.Dims {
		if !slices.Contains(p.Dims, int32(k)) {
			return fmt.Errorf("dims %v are not a permutation of %d dimensions", p.Dims, len(p.Dims))
		}
	}
	return nil
}

func (p *Reduction) check() error {
	return cmp.Or(known(reductionNames, p.Op), known(dataTypeNames, p.T))
}

func (p *TopK) check() error  { return known(dataTypeNames, p.T) }
func (p *Range) check() error { return known(dataTypeNames, p.T) }

func (p *Cast) check() error {
	switch p.To {
	case DTFloat, DTInt32, DTInt8, DTUint8, DTBool, DTInt64, DTDouble:
		return known(dataTypeNames, p.From)
	}
	return fmt.Errorf("to %s: %w", p.To, tensor.ErrUnsupported)
}

func (p *Relu) check() error {
	if p.Slope != p.Slope {
		return errors.New("the slope is not a number")
	}
	return nil
}

func (p *BatchMatMul) check() error { return nil }

func (p *MoE) check() error {
	if p.Layer < 0 || p.TopK < 1 || p.TopK > p.Experts {
		return fmt.Errorf("%d of %d experts of layer %d", p.TopK, p.Experts, p.Layer)
	}
	return nil
}

func (p *LinearAttention) check() error {
	if p.Type != ShortConv && p.Type != GatedDeltaRule {
		return fmt.Errorf("attn_type %q: %w", p.Type, tensor.ErrUnsupported)
	}
	if min(p.KeyHeads, p.ValueHeads, p.KeyDim, p.ValueDim) < 1 || p.ValueHeads%p.KeyHeads != 0 {
		return fmt.Errorf("%d heads of keys of %d elements, %d of values of %d", p.KeyHeads, p.KeyDim, p.ValueHeads, p.ValueDim)
	}
	return nil
}
