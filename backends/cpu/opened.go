package cpu

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// room is what layers may still take of the memory that Options gives.
type room struct {
	cache int64
	// experts is that of Options.ExpertBytes; bounded is set if there is such a bound.
	experts int64
	bounded bool
	// codes is that of Options.CodeBytes; limited is set if there is such a bound.
	codes   int64
	limited bool
}

// keepsCodes reports whether there is memory for the codes of a layer, of any but experts, in the form that the kernel reads, and takes it.
func (r *room) keepsCodes(c *mnn.Convolution) bool {
	if !r.limited {
		return true
	}
	need := codeBytes(c)
	if need > r.codes {
		return false
	}
	r.codes -= need
	return true
}

// codeBytes is about the memory of a layer's codes and scales, as they are and in the form that the kernel reads.
func codeBytes(c *mnn.Convolution) int64 {
	need := int64(c.Outputs) * int64(c.Inputs)
	if len(c.External) > 2 && c.Quan != nil && c.Quan.Type != 3 {
		scales := c.External[2] / 4
		if c.Quan.ScaleFP16 {
			scales *= 2
		}
		need = c.External[1] + 10*scales
	}
	return need
}

// keeps reports whether a layer of an expert may keep its codes and scales, and takes their memory.
func (r *room) keeps(c *mnn.Convolution) bool {
	if !r.bounded {
		return true
	}
	need := codeBytes(c)
	if need > r.experts {
		return false
	}
	r.experts -= need
	return true
}

// openedLinear is the layer without its scales, which is compiled again in every call: experts hold most of the weights of a
// model, and a call needs few of them.
func openedLinear(op *mnn.Op, c *mnn.Convolution, w mnn.Weights, o backend.Options) (*linear, error) {
	o.CacheBytes = 0
	m, err := c.Open(w)
	if err != nil {
		return nil, err
	}
	facts := *m
	facts.Scale, facts.Zero = nil, nil
	l := &linear{m: &facts, opened: func() (*linear, error) { return compileLinear(op, c, w, o) }}
	if l.setInt8(&o); l.quantized && !m.Linear {
		return nil, fmt.Errorf("codebook weights in int8 mode: %w", tensor.ErrUnsupported)
	}
	return l, nil
}
