package stage

import (
	"fmt"

	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/bench"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Cost is the size of a package of this program or of another.
type Cost struct {
	// Bytes are those of the files that the engine opens.
	Bytes int64
	// Weights counts those of all matrices, MatrixBytes the bytes that store them: headers, codes, scales and zero terms.
	// A matrix that is table and head counts once.
	Weights, MatrixBytes int64
	// Memory is the estimate for a device that a plan makes of the same package.
	Memory plan.Memory
}

// BitsPerWeight of matrices.
func (c *Cost) BitsPerWeight() float64 {
	return 8 * float64(c.MatrixBytes) / float64(max(c.Weights, 1))
}

// CostOf computes the cost of a package from its files.
func CostOf(p *runtime.Package) (*Cost, error) {
	c := &Cost{}
	var err error
	if c.Bytes, err = p.Bytes(); err != nil {
		return nil, err
	}
	table := p.Table()
	// The lookup holds its own copy of the scales, and reads rows from disk.
	c.Memory.Scales = 4 * int64(table.Scales)
	shared := false
	for _, part := range p.Parts {
		for _, op := range part.Graph.LiveOps() {
			m, err := c.addOp(part, op)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", op.Name, err)
			}
			shared = shared || m != nil && len(table.Codes) > 0 && len(m.Codes) > 0 && &table.Codes[0] == &m.Codes[0]
		}
	}
	if !shared {
		c.Weights += int64(table.Rows) * int64(table.Cols)
		c.MatrixBytes += int64(len(table.Codes)) + table.AlphaBytes
	}
	c.Memory.PerToken = 4 * bench.CostOf(p.Text().Graph).CacheWidth
	return c, nil
}

// addOp adds an op of a part. It returns the matrix of a linear layer, else nil.
func (c *Cost) addOp(part *runtime.Part, op *mnn.Op) (*mnn.Matrix, error) {
	switch x := op.Param.(type) {
	case *mnn.LayerNorm:
		c.addNorm(x)
	case *mnn.Blob:
		if len(x.External) > 1 {
			c.Memory.Weights += x.External[1]
		}
	case *mnn.LinearAttention:
		c.Memory.State += stateBytes(part.Graph, op, x)
	case *mnn.RoPE:
		c.addNorm(x.QNorm)
		c.addNorm(x.KNorm)
	case *mnn.Convolution:
		m, err := x.Open(part.Weights())
		if err == nil {
			c.addLinear(x, m)
		}
		return m, err
	}
	return nil, nil
}

// stateBytes is the size of a recurrence's state: the inputs of its convolution, and a matrix of every head.
func stateBytes(g *mnn.Graph, op *mnn.Op, p *mnn.LinearAttention) int64 {
	var n int64
	for i := range g.Ops {
		b, ok := g.Ops[i].Param.(*mnn.Blob)
		if ok && g.Ops[i].Outputs[0] == op.Inputs[3] && len(b.Dims) == 3 {
			n = int64(b.Dims[0]) * int64(b.Dims[2]-1)
		}
	}
	if p.Type == mnn.GatedDeltaRule {
		n += int64(p.ValueHeads) * int64(p.KeyDim) * int64(p.ValueDim)
	}
	return 4 * n
}

func (c *Cost) addNorm(n *mnn.LayerNorm) {
	if n == nil {
		return
	}
	bytes := 4 * int64(len(n.Gamma)+len(n.Beta))
	if len(n.External) > 2 {
		bytes = n.External[1] + n.External[2]
	}
	c.Memory.Weights += bytes
}

func (c *Cost) addLinear(x *mnn.Convolution, m *mnn.Matrix) {
	n := int64(m.Rows) * int64(m.Cols)
	c.Weights += n
	c.MatrixBytes += x.External[1]
	if x.Quan != nil {
		c.MatrixBytes += x.External[2]
	}
	c.Memory.Add(m.Bits, n, int64(len(m.Scale)+len(m.Zero)), int64(len(m.Bias)))
}
