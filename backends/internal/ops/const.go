package ops

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// OpenConst reads a Const, or takes what Options.Replace has for one that lies in the weight file.
func OpenConst(op *mnn.Op, p *mnn.Blob, w mnn.Weights, o *backend.Options) (mnn.Constant, error) {
	c, err := p.Open(w)
	if err != nil || o.Replace == nil || len(p.External) == 0 || c.Floats == nil {
		return c, err
	}
	f, _, err := o.Replace(op)
	if err != nil || f == nil {
		return c, err
	}
	if f.Len != len(c.Floats) {
		return c, fmt.Errorf("%d floats for a constant of shape %v: %w", f.Len, c.Shape, tensor.ErrCorrupt)
	}
	c.Floats, err = f.All()
	return c, err
}
