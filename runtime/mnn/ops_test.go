package mnn

import (
	"bytes"
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
	depthwise := func(change func(p *Depthwise)) func(*Graph) {
		return func(g *Graph) {
			p := &Depthwise{KernelX: 3, KernelY: 3, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, PadX: 1, PadY: 1, Group: 2, Outputs: 2, Inputs: 2}
			change(p)
			replace(g, OpDepthwise, p)
			g.Ops[logits].Inputs = []int32{0, 0, 0}
		}
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
		{"op type without rule", func(g *Graph) { g.Ops[logits].Type = OpFill }, tensor.ErrUnsupported, "op 5 Fill"},
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
		{"norm in the file", func(g *Graph) { replace(g, OpLayerNorm, &LayerNorm{Group: 1, External: []int64{0, 8, 12}}) }, tensor.ErrCorrupt,
			"gamma of 8 bytes with beta of 12"},
		{"norm group", func(g *Graph) { replace(g, OpLayerNorm, &LayerNorm{}) }, tensor.ErrCorrupt, "group 0"},
		{"unary", func(g *Graph) { replace(g, OpUnaryOp, &Unary{Op: 99}) }, tensor.ErrUnsupported, "UnaryOpOperation(99)"},
		{"binary", func(g *Graph) { replace(g, OpBinaryOp, &Binary{Op: 18}); g.Ops[logits].Inputs = []int32{1, 1} }, tensor.ErrUnsupported, "BinaryOpOperation(18)"},
		{"activation", func(g *Graph) { replace(g, OpBinaryOp, &Binary{Activation: 2}); g.Ops[logits].Inputs = []int32{1, 1} },
			tensor.ErrUnsupported, "activationType 2"},
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
		{"const in the file", blob(Blob{Dims: []int32{3}, DType: DTFloat, External: []int64{0, 16}}), tensor.ErrCorrupt, "DT_FLOAT with 16 bytes"},
		{"external negative", func(g *Graph) { conv(g).External[1] = -1 }, tensor.ErrCorrupt, "external"},
		{"external overflows", func(g *Graph) { conv(g).External[0] = math.MaxInt64 }, tensor.ErrCorrupt, "external"},
		{"external too long", func(g *Graph) { conv(g).External = make([]int64, 6) }, tensor.ErrCorrupt, "list of 6"},
		{"no weight", func(g *Graph) { conv(g).External = nil }, tensor.ErrCorrupt, "no weight"},
		{"weight storage", func(g *Graph) { conv(g).Quan.Type = 8 }, tensor.ErrUnsupported, "type 8"},
		{"no kernel", func(g *Graph) { conv(g).KernelY = 0 }, tensor.ErrCorrupt, "positive"},
		{"kernel of a channel that is too wide", depthwise(func(p *Depthwise) { p.KernelX = 65 }), tensor.ErrUnsupported, "a kernel of 3 x 65"},
		{"kernel of a channel of no rows", depthwise(func(p *Depthwise) { p.KernelY = 0 }), tensor.ErrUnsupported, "a kernel of 0 x 3"},
		{"kernel of a channel below padding", depthwise(func(p *Depthwise) { p.PadY = 3 }), tensor.ErrUnsupported, "padding 3 and 1"},
		{"kernel of a channel in groups", depthwise(func(p *Depthwise) { p.Group = 1 }), tensor.ErrUnsupported, "1 groups"},
		{"kernel of a channel beyond padding", depthwise(func(p *Depthwise) { p.PadX, p.PadY = 3, 3 }), tensor.ErrUnsupported, "padding 3 and 3"},
		{"kernel of a channel in the graph", depthwise(func(p *Depthwise) { p.Weight = []float32{1} }), tensor.ErrUnsupported, "weights that are not inputs"},
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

// TestSequenceRules does the same with the ops of experts and recurrences.
func TestSequenceRules(t *testing.T) {
	const (
		top     = 2
		experts = 3
	)
	moe := func(g *Graph) *MoE { return g.Ops[experts].Param.(*MoE) }
	last := func(op OpType, p Param, in ...int32) func(*Graph) {
		return func(g *Graph) {
			g.Ops = append(g.Ops, Op{Name: "last", Type: op, Inputs: in, Outputs: []int32{int32(len(g.Tensors))}, Param: p})
			g.Tensors = append(g.Tensors, "last")
		}
	}
	recurrence := func(p LinearAttention) func(*Graph) { return last(OpLinearAttention, &p, 0, 0, 0, 0) }
	for _, c := range []struct {
		name   string
		damage func(g *Graph)
		want   error
		text   string
	}{
		{"expert missing", func(g *Graph) { moe(g).Experts = 3 }, tensor.ErrCorrupt, `op 3 MoE "y": no subgraph "/expert/5_2"`},
		{"experts of another layer", func(g *Graph) { moe(g).Layer = 4 }, tensor.ErrCorrupt, `"/expert/4_0"`},
		{"more experts than graphs", func(g *Graph) { moe(g).Experts = math.MaxInt32 }, tensor.ErrCorrupt, `"/expert/5_2"`},
		{"no experts", func(g *Graph) { moe(g).Experts = 0 }, tensor.ErrCorrupt, "1 of 0 experts"},
		{"no choice", func(g *Graph) { moe(g).TopK = 0 }, tensor.ErrCorrupt, "0 of 2 experts"},
		{"layer", func(g *Graph) { moe(g).Layer = -1 }, tensor.ErrCorrupt, "layer -1"},
		{"expert of two inputs", func(g *Graph) {
			s := &g.Subgraphs[1]
			s.Ops = append(s.Ops, Op{Name: "z", Type: OpInput, Outputs: []int32{2}, Param: &Input{DType: DTFloat}})
			s.Tensors, s.Inputs = append(s.Tensors, "z"), []int32{0, 2}
		}, tensor.ErrCorrupt, "2 inputs and 1 outputs"},
		{"same name", func(g *Graph) { g.Subgraphs[1].Name = g.Subgraphs[0].Name }, tensor.ErrCorrupt, `subgraph 1 "/expert/5_0": another one`},
		{"no name", func(g *Graph) { g.Subgraphs[1].Name = "" }, tensor.ErrCorrupt, "no name"},
		{"no output", func(g *Graph) { g.Subgraphs[1].Outputs = nil }, tensor.ErrCorrupt, "no outputs"},
		{"output out of range", func(g *Graph) { g.Subgraphs[1].Outputs[0] = 2 }, tensor.ErrCorrupt, "output 2 is not"},
		{"output never written", func(g *Graph) {
			g.Subgraphs[1].Tensors = []string{"x", "y", "z"}
			g.Subgraphs[1].Outputs[0] = 2
		}, tensor.ErrCorrupt, "output 2 is not"},
		{"input not declared", func(g *Graph) { g.Subgraphs[1].Inputs[0] = 1 }, tensor.ErrCorrupt, "not among the inputs"},
		{"input twice", func(g *Graph) { g.Subgraphs[1].Inputs = []int32{0, 0} }, tensor.ErrCorrupt, "input 0 is given twice"},
		{"input out of range", func(g *Graph) { g.Subgraphs[1].Inputs = []int32{0, 9} }, tensor.ErrCorrupt, "2 inputs of which 1"},
		{"order of a subgraph", func(g *Graph) { o := g.Subgraphs[0].Ops; o[0], o[1] = o[1], o[0] }, tensor.ErrCorrupt,
			`subgraph 0 "/expert/5_0": op 1 Input "/x": output 0 "x" is read before`},
		{"op of a subgraph", func(g *Graph) { g.Subgraphs[0].Ops[1].Type = OpFill }, tensor.ErrUnsupported, `"/expert/5_0": op 1 Fill`},
		{"parameter of a subgraph", func(g *Graph) { g.Subgraphs[0].Ops[1].Param = &Unary{Op: 99} }, tensor.ErrUnsupported, "UnaryOpOperation(99)"},
		{"empty subgraph", func(g *Graph) { g.Subgraphs[0].Ops = nil }, tensor.ErrCorrupt, "no ops"},
		{"experts of experts", func(g *Graph) {
			g.Subgraphs[0].Ops[1] = Op{Type: OpMoE, Inputs: []int32{0, 0, 0}, Outputs: []int32{1}, Param: moe(g)}
		}, tensor.ErrUnsupported, "in a subgraph"},
		{"axes of a choice", func(g *Graph) { g.Ops[top].Inputs = []int32{0, 1, 1} }, tensor.ErrUnsupported, "3 inputs"},
		{"type of a choice", func(g *Graph) { g.Ops[top].Param.(*TopK).T = 8 }, tensor.ErrUnsupported, "DataType(8)"},
		{"order of nothing", last(OpPermute, &Permute{}, 0), tensor.ErrUnsupported, "dims are missing"},
		{"no order", last(OpPermute, &Permute{Dims: []int32{0, 2, 2}}, 0), tensor.ErrCorrupt, "not a permutation of 3"},
		{"order from the end", last(OpPermute, &Permute{Dims: []int32{0, -1}}, 0), tensor.ErrCorrupt, "not a permutation of 2"},
		{"reduction", last(OpReduction, &Reduction{Op: 6, T: DTFloat}, 0), tensor.ErrUnsupported, "ReductionType(6)"},
		{"type of a reduction", last(OpReduction, &Reduction{T: 8}, 0), tensor.ErrUnsupported, "DataType(8)"},
		{"cast", last(OpCast, &Cast{To: DTHalf}, 0), tensor.ErrUnsupported, "to DT_HALF"},
		{"cast from", last(OpCast, &Cast{From: 8, To: DTFloat}, 0), tensor.ErrUnsupported, "DataType(8)"},
		{"range", last(OpRange, &Range{T: 8}, 1, 1, 1), tensor.ErrUnsupported, "DataType(8)"},
		{"slope", last(OpReLU, &Relu{Slope: float32(math.NaN())}, 0), tensor.ErrCorrupt, "slope"},
		{"recurrence", recurrence(LinearAttention{Type: "lightning", KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1}), tensor.ErrUnsupported,
			`attn_type "lightning"`},
		{"no recurrence", recurrence(LinearAttention{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1}), tensor.ErrUnsupported, `attn_type ""`},
		{"heads of a recurrence", recurrence(LinearAttention{Type: GatedDeltaRule, KeyHeads: 2, ValueHeads: 3, KeyDim: 1, ValueDim: 1}),
			tensor.ErrCorrupt, "2 heads of keys"},
		{"size of a recurrence", recurrence(LinearAttention{Type: ShortConv, KeyHeads: 1, ValueHeads: 1, ValueDim: 1}), tensor.ErrCorrupt, "of 0 elements"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := expertGraph()
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

// Attributes that the op does not have, or has twice.
func TestAttributesOfMoE(t *testing.T) {
	file := marshal(t, expertGraph())
	for _, c := range []struct {
		from, to string
		want     error
		text     string
	}{
		{"layer_id", "layer_no", tensor.ErrUnsupported, `attribute "layer_no"`},
		{"num_experts", "num_expertx", tensor.ErrUnsupported, `attribute "num_expertx"`},
	} {
		b := bytes.Replace(file, []byte(c.from), []byte(c.to), 1)
		if _, err := Open(b); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("error %v, want %v with %q", err, c.want, c.text)
		}
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
