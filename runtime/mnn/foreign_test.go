package mnn

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// jsonMargin is half of the last digit of a dump, which prints floats with six decimals, and some float32
// rounding.
const jsonMargin = 6e-7

// sameGraph compares graphs: a list without elements is a nil list, and NaN equals itself.
var sameGraph = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), floatLists(0)}

// floatLists compares long tables much faster than cmp does element by element.
func floatLists(margin float64) cmp.Option {
	return cmp.FilterValues(func(x, y []float32) bool { return len(x)+len(y) > 0 }, cmp.Comparer(func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(a, b float32) bool {
			return a == b || math.Abs(float64(a)-float64(b)) <= margin || a != a && b != b
		})
	}))
}

func TestForeignSample(t *testing.T) {
	// Encoded by flatc with MNN's schema and --force-defaults: one layer of a stock C4 graph; experts with a router, a
	// mask and a recurrence.
	for _, name := range []string{"foreign", "experts"} {
		t.Run(name, func(t *testing.T) {
			g := openFile(t, "testdata/"+name+".mnn")
			compareDump(t, g, "testdata/"+name+".json")
			if d := cmp.Diff(g, reopen(t, g), sameGraph); d != "" {
				t.Errorf("Open(Marshal(g)) differs:\n%s", d)
			}
		})
	}
}

func openFile(t *testing.T, path string) *Graph {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Open(b)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return g
}

func reopen(t *testing.T, g *Graph) *Graph {
	t.Helper()
	b, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// The types below read the dump by its own names, independently of the code under test.
type (
	dumpNet struct {
		ExtraInfo  struct{ Version string }
		Oplists    []dumpOp
		OutputName []string
		TensorName []string
		UUID       string `json:"mnn_uuid"`
		Subgraphs  []dumpSubgraph
	}
	dumpOp struct {
		Name, Type    string
		InputIndexes  []int32
		OutputIndexes []int32
		MainType      string `json:"main_type"`
		Main          json.RawMessage
		Format        string `json:"defaultDimentionFormat"`
	}
	dumpConvolution struct {
		Common struct {
			PadX, PadY, KernelX, KernelY, StrideX, StrideY, DilateX, DilateY int32
			PadMode                                                          string
			Group, OutputCount, InputCount                                   int32
			Relu, Relu6                                                      bool
		}
		QuanParameter *struct {
			Type                          int32
			UseInt32                      bool
			QuantScale, ScaleIn, ScaleOut float32
			AMaxOrBits, AMin, ReadType    int32
			HasScaleInt                   bool `json:"has_scaleInt"`
			ShapeInt32                    bool
			WeightSize                    uint32
			ScaleStorage                  string
		}
		External []int64
	}
	dumpNorm struct {
		Axis        []int32
		Epsilon     float32
		Gamma, Beta []float32
		Group       int32
		External    []int64
		UseRMSNorm  bool
	}
)

func compareDump(t *testing.T, g *Graph, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var net dumpNet
	if err := json.Unmarshal(b, &net); err != nil {
		t.Fatal(err)
	}
	want := &Graph{Tensors: net.TensorName, Outputs: net.OutputName, Version: net.ExtraInfo.Version, UUID: net.UUID}
	got := *g
	got.Ops, got.Subgraphs = nil, nil
	if d := cmp.Diff(want, &got, sameGraph); d != "" {
		t.Errorf("graph differs:\n%s", d)
	}
	if len(net.Oplists) == 0 || len(g.Ops) != len(net.Oplists) {
		t.Fatalf("%d ops, the dump has %d", len(g.Ops), len(net.Oplists))
	}
	near := cmp.Options{cmpopts.EquateEmpty(), floatLists(jsonMargin), cmpopts.EquateApprox(0, jsonMargin)}
	for i, d := range net.Oplists {
		if d := cmp.Diff(d.op(t), g.Ops[i], near); d != "" {
			t.Errorf("op %d differs:\n%s", i, d)
		}
	}
	if len(g.Subgraphs) != len(net.Subgraphs) {
		t.Fatalf("%d subgraphs, the dump has %d", len(g.Subgraphs), len(net.Subgraphs))
	}
	for k := range net.Subgraphs {
		if d := cmp.Diff(net.Subgraphs[k].subgraph(t), g.Subgraphs[k], near); d != "" {
			t.Errorf("subgraph %d differs:\n%s", k, d)
		}
	}
}

func (d *dumpOp) op(t *testing.T) Op {
	t.Helper()
	op := Op{
		Name:    d.Name,
		Type:    named(t, opNames, d.Type),
		Inputs:  d.InputIndexes,
		Outputs: d.OutputIndexes,
		Format:  map[string]DimFormat{"NHWC": DimNHWC, "NCHW": DimNCHW, "NC4HW4": DimNC4HW4}[d.Format],
		Param:   d.param(t),
	}
	if op.Format.String() != d.Format {
		t.Fatalf("format %s", d.Format)
	}
	return op
}

// named looks a dumped name up.
func named[T comparable](t *testing.T, names map[T]string, name string) T {
	t.Helper()
	for v, s := range names {
		if s == name {
			return v
		}
	}
	t.Fatalf("no value is named %q", name)
	panic("unreachable")
}

func (d *dumpOp) param(t *testing.T) Param {
	t.Helper()
	read := func(v any) {
		t.Helper()
		if err := json.Unmarshal(d.Main, v); err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
	}
	switch d.MainType {
	case "NONE":
		return nil
	case "Input":
		var m struct {
			Dims           []int32
			Dtype, Dformat string
		}
		read(&m)
		return &Input{Dims: m.Dims, DType: named(t, dataTypeNames, m.Dtype), Format: named(t, formatNames, m.Dformat)}
	case "Blob":
		var m struct {
			Dims                 []int32
			DataFormat, DataType string
			Int32s               []int32
			Float32s             []float32
			External             []int64
		}
		read(&m)
		return &Blob{Dims: m.Dims, Format: named(t, formatNames, m.DataFormat), DType: named(t, dataTypeNames, m.DataType),
			Int32s: m.Int32s, Float32s: m.Float32s, External: m.External}
	case "Reshape":
		var m struct {
			Dims    []int32
			DimType string
		}
		read(&m)
		return &Reshape{Dims: m.Dims, DimType: named(t, formatNames, m.DimType)}
	case "TensorConvertInfo":
		var m struct{ Source, Dest string }
		read(&m)
		return &Convert{Source: named(t, formatNames, m.Source), Dest: named(t, formatNames, m.Dest)}
	case "Convolution2D":
		var m dumpConvolution
		read(&m)
		return m.convolution()
	case "LayerNorm":
		var m dumpNorm
		read(&m)
		return m.norm()
	case "BinaryOp":
		var m struct {
			OpType, T      string
			ActivationType int32
		}
		read(&m)
		return &Binary{Op: named(t, binaryNames, m.OpType), T: named(t, dataTypeNames, m.T), Activation: m.ActivationType}
	case "UnaryOp":
		var m struct{ OpType, T string }
		read(&m)
		return &Unary{Op: named(t, unaryNames, m.OpType), T: named(t, dataTypeNames, m.T)}
	case "Axis":
		var m Axis
		read(&m)
		return &m
	case "StridedSliceParam":
		var m struct {
			Index, T                                                                string
			BeginMask, EndMask, EllipsisMask, NewAxisMask, ShrinkAxisMask, FromType int32
		}
		read(&m)
		return &StridedSlice{
			Index: named(t, dataTypeNames, m.Index), T: named(t, dataTypeNames, m.T),
			BeginMask: m.BeginMask, EndMask: m.EndMask, EllipsisMask: m.EllipsisMask,
			NewAxisMask: m.NewAxisMask, ShrinkAxisMask: m.ShrinkAxisMask, FromType: m.FromType,
		}
	case "SqueezeParam":
		var m struct{ SqueezeDims []int32 }
		read(&m)
		return &Squeeze{Dims: m.SqueezeDims}
	case "GatherV2":
		var m struct{ Taxis, Tindices, Tparams string }
		read(&m)
		return &GatherV2{Axis: named(t, dataTypeNames, m.Taxis), Indices: named(t, dataTypeNames, m.Tindices), Params: named(t, dataTypeNames, m.Tparams)}
	case "AttentionParam":
		var m struct {
			KVCache    bool    `json:"kv_cache"`
			LayerIndex int32   `json:"layer_index"`
			Shared     int32   `json:"kv_shared_layer_index"`
			OutputC4   bool    `json:"output_c4"`
			AttnScale  float32 `json:"attnScale"`
		}
		read(&m)
		if m.Shared != -1 {
			t.Fatalf("%s: shares a cache", d.Name)
		}
		return &Attention{KVCache: m.KVCache, LayerIndex: m.LayerIndex, OutputC4: m.OutputC4, Scale: m.AttnScale}
	case "RoPEParam":
		var m struct {
			Cut   int32     `json:"rope_cut_head_dim"`
			Heads int32     `json:"num_head"`
			KV    int32     `json:"kv_num_head"`
			Dim   int32     `json:"head_dim"`
			QNorm *dumpNorm `json:"q_norm"`
			KNorm *dumpNorm `json:"k_norm"`
		}
		read(&m)
		return &RoPE{CutHeadDim: m.Cut, Heads: m.Heads, KVHeads: m.KV, HeadDim: m.Dim, QNorm: m.QNorm.norm(), KNorm: m.KNorm.norm()}
	}
	return d.sequenceParam(t, read)
}

func (m *dumpNorm) norm() *LayerNorm {
	return &LayerNorm{Axis: m.Axis, Epsilon: m.Epsilon, Gamma: m.Gamma, Beta: m.Beta, Group: m.Group, External: m.External, RMS: m.UseRMSNorm}
}

func (m *dumpConvolution) convolution() *Convolution {
	c := &m.Common
	conv := &Convolution{
		KernelX: c.KernelX, KernelY: c.KernelY, StrideX: c.StrideX, StrideY: c.StrideY,
		DilateX: c.DilateX, DilateY: c.DilateY, PadX: c.PadX, PadY: c.PadY,
		PadMode: map[string]int8{"CAFFE": 0, "VALID": 1, "SAME": 2}[c.PadMode],
		Group:   c.Group, Outputs: c.OutputCount, Inputs: c.InputCount, Relu: c.Relu, Relu6: c.Relu6,
		External: m.External,
	}
	if q := m.QuanParameter; q != nil {
		conv.Quan = &Quan{
			Type: q.Type, MaxOrBits: q.AMaxOrBits, Min: q.AMin, ReadType: q.ReadType,
			QuantScale: q.QuantScale, ScaleIn: q.ScaleIn, ScaleOut: q.ScaleOut,
			ScaleInt: q.HasScaleInt, UseInt32: q.UseInt32, ShapeInt32: q.ShapeInt32,
			WeightSize: q.WeightSize, ScaleFP16: q.ScaleStorage == "FP16",
		}
	}
	return conv
}
