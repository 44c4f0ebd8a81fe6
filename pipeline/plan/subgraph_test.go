package plan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// inMemory is a source of float32 tensors.
type inMemory map[string][]float32

func (m inMemory) Tensors() []tensor.Info {
	var list []tensor.Info
	for name, v := range m {
		list = append(list, tensor.Info{Name: name, DType: tensor.F32, Shape: tensor.Shape{int64(len(v))}, Size: 4 * int64(len(v))})
	}
	return list
}

func (m inMemory) Open(name string) (*io.SectionReader, error) {
	var b []byte
	for _, v := range m[name] {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), nil
}

// expertModel has a norm with offsets, constants, and two experts with a matrix and a bias each.
func expertModel() (*lower.Model, inMemory) {
	const n = 32
	src := inMemory{}
	fill := func(name string, count int) arch.Weight {
		v := make([]float32, count)
		for i := range v {
			v[i] = float32(len(src)*1000+i) / 512
		}
		src[name] = v
		return arch.Weight{Tensor: name, Rows: count}
	}
	matrix := func(name string, rows, cols int) arch.Weight {
		w := fill(name, rows*cols)
		w.Rows, w.Cols = rows, cols
		return w
	}
	part := &lower.Part{Graph: &mnn.Graph{Outputs: []string{"y"}}}
	g := part.Graph
	op := func(ops *[]mnn.Op, tensors *[]string, name string, t mnn.OpType, p mnn.Param, in ...int32) {
		*tensors = append(*tensors, name)
		*ops = append(*ops, mnn.Op{Name: name, Type: t, Inputs: in, Outputs: []int32{int32(len(*tensors) - 1)}, Param: p})
	}
	conv := func() *mnn.Convolution {
		return &mnn.Convolution{KernelX: 1, KernelY: 1, StrideX: 1, StrideY: 1, DilateX: 1, DilateY: 1, Group: 1, Outputs: n, Inputs: n}
	}
	op(&g.Ops, &g.Tensors, "x", mnn.OpInput, &mnn.Input{Dims: []int32{-1, n}, DType: mnn.DTFloat})
	op(&g.Ops, &g.Tensors, "norm", mnn.OpLayerNorm, &mnn.LayerNorm{Axis: []int32{-1}, Epsilon: 1e-5, Group: 1}, 0)
	op(&g.Ops, &g.Tensors, "vector", mnn.OpConst, &mnn.Blob{Dims: []int32{n}, DType: mnn.DTFloat})
	op(&g.Ops, &g.Tensors, "matrix", mnn.OpConst, &mnn.Blob{Dims: []int32{3, 1, n}, DType: mnn.DTFloat})
	op(&g.Ops, &g.Tensors, "k", mnn.OpConst, &mnn.Blob{DType: mnn.DTInt32, Int32s: []int32{1}})
	op(&g.Ops, &g.Tensors, "top", mnn.OpTopKV2, &mnn.TopK{T: mnn.DTFloat, Largest: true}, 1, 4)
	g.Tensors = append(g.Tensors, "chosen")
	g.Ops[len(g.Ops)-1].Outputs = []int32{5, 6}
	op(&g.Ops, &g.Tensors, "y", mnn.OpMoE, &mnn.MoE{Layer: 2, Experts: 2, TopK: 1}, 1, 5, 6)
	part.Slots = []lower.Slot{
		{Kind: lower.NormSlot, Name: "norm", Op: 1, Weight: fill("norm.weight", n), Bias: fill("norm.bias", n)},
		{Kind: lower.ConstSlot, Name: "vector", Op: 2, Weight: fill("vector", n)},
		{Kind: lower.ConstSlot, Name: "matrix", Op: 3, Weight: matrix("matrix", 3, n)},
	}
	for j := range int32(2) {
		name := (&mnn.MoE{Layer: 2}).Expert(j)
		s := mnn.Subgraph{Name: name, Inputs: []int32{0}, Outputs: []int32{2}}
		op(&s.Ops, &s.Tensors, name+"/x", mnn.OpInput, &mnn.Input{Dims: []int32{-1, n}, DType: mnn.DTFloat})
		op(&s.Ops, &s.Tensors, name+"/linear", mnn.OpConvolution, conv(), 0)
		op(&s.Ops, &s.Tensors, name+"/scale", mnn.OpConst, &mnn.Blob{DType: mnn.DTFloat})
		op(&s.Ops, &s.Tensors, name+"/y", mnn.OpBinaryOp, &mnn.Binary{Op: mnn.BinaryMul, T: mnn.DTFloat}, 1, 2)
		s.Outputs[0] = 3
		g.Subgraphs = append(g.Subgraphs, s)
		p := fmt.Sprintf("experts.%d.", j)
		part.Slots = append(part.Slots,
			lower.Slot{Kind: lower.LinearSlot, Name: name + "/linear", Op: 1, Subgraph: int(j) + 1, Weight: matrix(p+"weight", n, n), Bias: fill(p+"bias", n)},
			lower.Slot{Kind: lower.ConstSlot, Name: name + "/scale", Op: 2, Subgraph: int(j) + 1, Weight: fill(p+"scale", 1)})
	}
	part.Slots = append(part.Slots, lower.Slot{Kind: lower.TableSlot, Name: "embedding", Op: -1, Weight: matrix("table", 4, n), Table: true, Lookup: true})
	return &lower.Model{Parts: []*lower.Part{part}, CacheElements: 12, StateBytes: 1000}, src
}

// Offsets of norms, constants in the weight file and the matrices of experts go where the graph looks for them.
func TestSubgraphsReadBack(t *testing.T) {
	m, src := expertModel()
	s := spec(t, "w4-b32-asym")
	pl, err := New(m, src.Tensors(), &quant.Policy{Default: s, Table: s})
	if err != nil {
		t.Fatal(err)
	}
	p := pl.Parts[0]
	file := memory(written(t, p, src, WriteOptions{Threads: 2, Memory: 1 << 20}))
	b, err := p.Link().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	g, err := mnn.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, op := range g.AllOps() {
		seen[op.Name] = true
		switch x := op.Param.(type) {
		case *mnn.LayerNorm:
			gamma, beta, err := x.Norm32(file)
			if err != nil || !slices.Equal(gamma, src["norm.weight"]) || !slices.Equal(beta, src["norm.bias"]) {
				t.Errorf("norm of %v and %v, %v", gamma, beta, err)
			}
		case *mnn.Blob:
			if x.DType != mnn.DTFloat {
				continue
			}
			name := map[string]string{"/expert/2_0/scale": "experts.0.scale", "/expert/2_1/scale": "experts.1.scale"}[op.Name]
			if name == "" {
				name = op.Name
			}
			if c, err := x.Open(file); err != nil || !slices.Equal(c.Floats, src[name]) {
				t.Errorf("%s: %v, %v, want %v", op.Name, c, err, src[name])
			}
		case *mnn.Convolution:
			name := map[string]string{"/expert/2_0/linear": "experts.0.", "/expert/2_1/linear": "experts.1."}[op.Name]
			w, err := x.Open(file)
			if err != nil || !slices.Equal(w.Bias, src[name+"bias"]) {
				t.Fatalf("%s: bias %v, %v", op.Name, w, err)
			}
			for i := range p.Items {
				if p.Items[i].Slot.Name == op.Name {
					checkMatrix(t, &p.Items[i], w, src[name+"weight"])
				}
			}
		}
	}
	if len(seen) != 15 {
		t.Errorf("names of %d ops", len(seen))
	}
	r := pl.Memory()
	const codes, scales, floats = 2 * 32 * 32 / 2, 2*2*32 + 2*4, 2*32 + 32 + 3*32 + 2*32 + 2
	if r.Weights != codes+4*floats || r.Scales != 4*scales || r.PerToken != 48 || r.State != 1000 || r.Total(10) != r.Weights+r.Scales+1480 {
		t.Errorf("memory %+v", r)
	}
}

// Constants are float32 whatever the policy says, and an override that matches nothing else is refused.
func TestConstantsTakeNoSpec(t *testing.T) {
	m, src := expertModel()
	p := &quant.Policy{Default: spec(t, "w4-brow-sym"), Table: quant.Half, Overrides: []quant.Override{override(t, "^vector$:bits=8")}}
	if _, err := New(m, src.Tensors(), p); err == nil || err.Error() != (&UnusedOverride{0, "^vector$"}).Error() {
		t.Errorf("error %v", err)
	}
	p.Overrides = []quant.Override{{Match: regexp.MustCompile("vector|experts.1")}}
	pl, err := New(m, src.Tensors(), p)
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]string{}
	for it := range pl.Items() {
		specs[it.Slot.Weight.Tensor] = it.Spec()
	}
	for name, want := range map[string]string{"vector": "f32", "matrix": "f32", "norm.weight": "f32", "experts.1.scale": "f32",
		"experts.1.weight": "w4-brow-sym", "table": "f16"} {
		if specs[name] != want {
			t.Errorf("%s is %s, want %s", name, specs[name], want)
		}
	}
}
