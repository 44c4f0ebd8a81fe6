package mnn

import (
	"errors"
	"math"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestRules breaks one rule at a time: Marshal must refuse the graph, and Open a file that holds it.
func TestRules(t *testing.T) {
	const (
		input = iota
		preReshape
		preConvert
		linear
		postConvert
		logits
	)
	conv := func(g *Graph) *Convolution { return g.Ops[linear].Param.(*Convolution) }
	replace := func(g *Graph, typ OpType, p Param) { g.Ops[logits].Type, g.Ops[logits].Param = typ, p }
	blob := func(b Blob) func(*Graph) {
		return func(g *Graph) { replace(g, OpConst, &b); g.Ops[logits].Inputs = nil }
	}
	for _, c := range []struct {
		name   string
		damage func(g *Graph)
		want   error
		text   string
	}{
		{"no ops", func(g *Graph) { g.Ops = nil }, tensor.ErrCorrupt, "no ops"},
		{"no tensors", func(g *Graph) { g.Tensors = nil }, tensor.ErrCorrupt, "no tensors"},
		{"input out of range", func(g *Graph) { g.Ops[linear].Inputs[0] = 6 }, tensor.ErrCorrupt, `op 3 Convolution "/Linear": input 6 of 6 tensors`},
		{"input negative", func(g *Graph) { g.Ops[linear].Inputs[0] = -1 }, tensor.ErrCorrupt, "input -1"},
		{"output out of range", func(g *Graph) { g.Ops[linear].Outputs[0] = 6 }, tensor.ErrCorrupt, "output 6 of 6 tensors"},
		{"written twice", func(g *Graph) { g.Ops[linear].Outputs[0] = 2 }, tensor.ErrCorrupt, "written twice"},
		{"reads its own output", func(g *Graph) { g.Ops[linear].Inputs[0] = 3 }, tensor.ErrCorrupt, "read before it is written"},
		{"order", func(g *Graph) { g.Ops[1], g.Ops[2] = g.Ops[2], g.Ops[1] }, tensor.ErrCorrupt, "read before it is written"},
		{"never written", func(g *Graph) { g.Ops = append(g.Ops[:2], g.Ops[3:]...) }, tensor.ErrCorrupt, `"/pre_convert" is written by no op`},
		{"unknown output", func(g *Graph) { g.Outputs = []string{"logit"} }, tensor.ErrCorrupt, `output "logit"`},
		{"op type without rule", func(g *Graph) { g.Ops[logits].Type = OpMoE }, tensor.ErrUnsupported, "op 5 MoE"},
		{"op type without name", func(g *Graph) { g.Ops[logits].Type = 9999 }, tensor.ErrUnsupported, "OpType(9999)"},
		{"wrong parameter", func(g *Graph) { g.Ops[logits].Param = &Axis{} }, tensor.ErrCorrupt, "parameter Axis instead of Reshape"},
		{"no parameter", func(g *Graph) { g.Ops[logits].Param = nil }, tensor.ErrCorrupt, "parameter NONE instead of Reshape"},
		{"too many inputs", func(g *Graph) { g.Ops[linear].Inputs = []int32{2, 2, 2} }, tensor.ErrUnsupported, "3 inputs"},
		{"no outputs", func(g *Graph) { g.Ops[linear].Outputs = nil }, tensor.ErrUnsupported, "0 outputs"},
		{"format of op", func(g *Graph) { g.Ops[linear].Format = 3 }, tensor.ErrUnsupported, "UNKNOWN"},
		{"format", func(g *Graph) { g.Ops[preConvert].Param.(*Convert).Dest = 9 }, tensor.ErrUnsupported, "MNN_DATA_FORMAT(9)"},
		{"dtype", func(g *Graph) { g.Ops[input].Param.(*Input).DType = 8 }, tensor.ErrUnsupported, "DataType(8)"},
		{"reshape to nothing", func(g *Graph) { g.Ops[logits].Param = &Reshape{} }, tensor.ErrCorrupt, "neither dims"},
		{"unsqueeze of nothing", func(g *Graph) { replace(g, OpUnsqueeze, &Squeeze{}) }, tensor.ErrCorrupt, "neither dims"},
		{"norm of two", func(g *Graph) { replace(g, OpLayerNorm, &LayerNorm{Group: 1}); g.Ops[logits].Inputs = []int32{1, 2} }, tensor.ErrCorrupt, "two of each"},
		{"norm lists", func(g *Graph) { replace(g, OpLayerNorm, &LayerNorm{Group: 1, Beta: []float32{1}}) }, tensor.ErrCorrupt, "gamma of length 0"},
		{"norm group", func(g *Graph) { replace(g, OpLayerNorm, &LayerNorm{}) }, tensor.ErrCorrupt, "group 0"},
		{"unary", func(g *Graph) { replace(g, OpUnaryOp, &Unary{Op: 99}) }, tensor.ErrUnsupported, "UnaryOpOperation(99)"},
		{"binary", func(g *Graph) { replace(g, OpBinaryOp, &Binary{Op: 18}); g.Ops[logits].Inputs = []int32{1, 1} }, tensor.ErrUnsupported, "BinaryOpOperation(18)"},
		{"activation", func(g *Graph) { replace(g, OpBinaryOp, &Binary{Activation: 2}); g.Ops[logits].Inputs = []int32{1, 1} }, tensor.ErrUnsupported, "activationType 2"},
		{"slice", func(g *Graph) {
			replace(g, OpStridedSlice, &StridedSlice{FromType: 2})
			g.Ops[logits].Inputs = []int32{1, 1, 1, 1}
		}, tensor.ErrUnsupported, "fromType 2"},
		{"const of too few", blob(Blob{Dims: []int32{2}, DType: DTFloat, Float32s: []float32{1}}), tensor.ErrCorrupt, "1 values"},
		{"const of two types", blob(Blob{DType: DTFloat, Float32s: []float32{1}, Int32s: []int32{1}}), tensor.ErrCorrupt, "2 in all"},
		{"const of negative size", blob(Blob{Dims: []int32{-1}, DType: DTFloat}), tensor.ErrCorrupt, "dims [-1]"},
		{"const of huge size", blob(Blob{Dims: []int32{1 << 30, 1 << 30, 1 << 30}, DType: DTFloat}), tensor.ErrCorrupt, "dims"},
		{"const of type", blob(Blob{DType: DTInt64}), tensor.ErrUnsupported, "DT_INT64"},
		{"const in two places", blob(Blob{DType: DTInt32, Int32s: []int32{1}, External: []int64{0, 4}}), tensor.ErrCorrupt, "both"},
		{"external negative", func(g *Graph) { conv(g).External[1] = -1 }, tensor.ErrCorrupt, "external"},
		{"external overflows", func(g *Graph) { conv(g).External[0] = math.MaxInt64 }, tensor.ErrCorrupt, "external"},
		{"external too long", func(g *Graph) { conv(g).External = make([]int64, 6) }, tensor.ErrCorrupt, "list of 6"},
		{"no weight", func(g *Graph) { conv(g).External = nil }, tensor.ErrCorrupt, "no weight"},
		{"weight storage", func(g *Graph) { conv(g).Quan.Type = 8 }, tensor.ErrUnsupported, "type 8"},
		{"no kernel", func(g *Graph) { conv(g).KernelY = 0 }, tensor.ErrCorrupt, "positive"},
		{"padding", func(g *Graph) { conv(g).PadMode = 3 }, tensor.ErrUnsupported, "padMode 3"},
		{"bias", func(g *Graph) { conv(g).Bias = []float32{1} }, tensor.ErrCorrupt, "1 biases"},
		{"heads", func(g *Graph) {
			replace(g, OpRoPE, &RoPE{Heads: 2, KVHeads: 1, HeadDim: 4, CutHeadDim: 5})
			g.Tensors = append(g.Tensors, "k")
			g.Ops[logits].Inputs, g.Ops[logits].Outputs = []int32{1, 1, 1, 1}, []int32{5, 6}
		}, tensor.ErrCorrupt, "5 of which rotate"},
		{"norm of heads", func(g *Graph) {
			replace(g, OpRoPE, &RoPE{Heads: 2, KVHeads: 1, HeadDim: 4, QNorm: &LayerNorm{Group: 1, External: []int64{0, 16, 0}}})
			g.Tensors = append(g.Tensors, "k")
			g.Ops[logits].Inputs, g.Ops[logits].Outputs = []int32{1, 1, 1, 1}, []int32{5, 6}
		}, tensor.ErrUnsupported, "norm of heads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := smallGraph()
			c.damage(g)
			if _, err := g.Marshal(); err == nil {
				t.Error("Marshal wrote it")
			}
			b, err := g.encode()
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(b)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

// A cache that is shared without saying so has no encoding, so that only Marshal can refuse it.
func TestMarshalRefusesSharedLayerWithoutShare(t *testing.T) {
	g := fullGraph()
	g.Ops[len(g.Ops)-1].Param = &Attention{KVSharedLayer: 2}
	if _, err := g.Marshal(); err == nil {
		t.Error("Marshal wrote it")
	}
}

func TestEncoderStopsAtItsLimit(t *testing.T) {
	e := &encoder{Builder: flatbuffers.NewBuilder(0)}
	if !e.room(maxGraphBytes) {
		t.Fatal("an empty encoder has no room")
	}
	if e.text("x") == 0 || e.room(maxGraphBytes) || !e.full {
		t.Error("more room than the limit")
	}
	if e.text("x") != 0 || vector(e, []int32{1}) != 0 || e.texts([]string{"x"}) != 0 {
		t.Error("a full encoder goes on")
	}
}
