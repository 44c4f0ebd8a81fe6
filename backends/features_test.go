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

// TestFeaturesDivision: quotients of integers are told from those of numbers.
func TestFeaturesDivision(t *testing.T) {
	for _, c := range []struct {
		op      mnn.BinaryOp
		divisor mnn.Blob
		want    bool
	}{
		{mnn.BinaryRealDiv, mnn.Blob{DType: mnn.DTInt32, Int32s: []int32{64}}, true},
		{mnn.BinaryRealDiv, mnn.Blob{DType: mnn.DTFloat, Float32s: []float32{64}}, false},
		{mnn.BinaryMul, mnn.Blob{DType: mnn.DTInt32, Int32s: []int32{64}}, false},
	} {
		g := &mnn.Graph{Tensors: []string{"positions", "rows", "quotient"}, Ops: []mnn.Op{
			{Type: mnn.OpConst, Param: &c.divisor, Outputs: []int32{1}},
			{Type: mnn.OpBinaryOp, Param: &mnn.Binary{Op: c.op}, Inputs: []int32{0, 1}, Outputs: []int32{2}},
		}}
		if f := backends.FeaturesOf(g); f.IntDivision != c.want {
			t.Errorf("%v by %+v: %v", c.op, c.divisor, f.IntDivision)
		}
	}
}

// TestFeaturesWidths: widths of norms and of keys of delta rules on which OpenCL differs. Norms in the C4 form have none.
func TestFeaturesWidths(t *testing.T) {
	g := &mnn.Graph{Tensors: []string{"x", "rows", "norm", "packed", "delta"}, Ops: []mnn.Op{
		{Type: mnn.OpReshape, Param: &mnn.Reshape{Dims: []int32{1, -1, 87}}, Inputs: []int32{0}, Outputs: []int32{1}},
		{Type: mnn.OpLayerNorm, Param: &mnn.LayerNorm{}, Inputs: []int32{1}, Outputs: []int32{2}},
		{Type: mnn.OpLayerNorm, Param: &mnn.LayerNorm{}, Inputs: []int32{1}, Outputs: []int32{3}, Format: mnn.DimNC4HW4},
		{Type: mnn.OpLayerNorm, Param: &mnn.LayerNorm{}},
		{Type: mnn.OpLinearAttention, Param: &mnn.LinearAttention{Type: mnn.GatedDeltaRule, QKNorm: true, KeyDim: 24, ValueDim: 24}},
	}}
	if f := backends.FeaturesOf(g); !slices.Equal(f.NormWidths, []int{87}) || !f.RaggedDelta {
		t.Errorf("%+v", f)
	}
	// Rows of 70 elements are no problem of linear layers in the classic form.
	for _, packed := range []bool{false, true} {
		g := &mnn.Graph{Tensors: []string{"x", "rows", "stream", "norm"}, Ops: []mnn.Op{
			{Type: mnn.OpReshape, Param: &mnn.Reshape{Dims: []int32{-1, 70, 1, 1}}, Inputs: []int32{0}, Outputs: []int32{1}},
			{Type: mnn.OpConvertTensor, Param: &mnn.Convert{Source: mnn.NCHW, Dest: mnn.NC4HW4}, Inputs: []int32{1}, Outputs: []int32{2}},
			{Type: mnn.OpLayerNorm, Param: &mnn.LayerNorm{}, Inputs: []int32{2}, Outputs: []int32{3}},
		}}
		if packed {
			g.Ops[2].Format = mnn.DimNC4HW4
		}
		if f := backends.FeaturesOf(g); f.PackedRest != packed {
			t.Errorf("packed %v: %+v", packed, f)
		}
	}
	opencl, err := backends.ProfileOf("opencl")
	if err != nil {
		t.Fatal(err)
	}
	// A row of 66 elements has 16 work-items and 17 groups, of which the first work-item takes the last.
	for n, want := range map[int]bool{3: false, 7: false, 64: false, 66: false, 67: false, 70: true, 87: true, 1030: true, 1026: false} {
		list := opencl.Problems(&backends.Features{NormWidths: []int{n}}, backends.Settings{}, "3.6.1")
		if got := slices.ContainsFunc(list, func(p backends.Problem) bool { return p.Rule.ID == "norm-rest" }); got != want {
			t.Errorf("rows of %d: %v", n, list)
		}
	}
}
