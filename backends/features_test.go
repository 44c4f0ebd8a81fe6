package backends_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// A graph from elsewhere may have any shape: a chain that is longer than every layer has no head dimension, and ends.
func TestFeaturesDeep(t *testing.T) {
	for _, c := range []struct {
		ops  int
		want []int
	}{{10, []int{24}}, {1 << 20, []int{}}} {
		g := &mnn.Graph{Tensors: []string{"x", "mask"}}
		add := func(kind mnn.OpType, p mnn.Param, in ...int32) int32 {
			out := int32(len(g.Tensors))
			g.Tensors = append(g.Tensors, fmt.Sprint(out))
			g.Ops = append(g.Ops, mnn.Op{Type: kind, Param: p, Inputs: in, Outputs: []int32{out}})
			return out
		}
		q := add(mnn.OpReshape, &mnn.Reshape{Dims: []int32{1, -1, 4, 24}}, 0)
		for range c.ops {
			q = add(mnn.OpUnaryOp, &mnn.Unary{}, q)
		}
		add(mnn.OpAttention, &mnn.Attention{}, q, q, q, 1, q)
		f := backends.FeaturesOf(g)
		if !slices.Equal(f.HeadDims, c.want) || !f.Sinks || !f.Masks || !f.Classic {
			t.Errorf("%d ops: %+v", c.ops, f)
		}
	}
}
