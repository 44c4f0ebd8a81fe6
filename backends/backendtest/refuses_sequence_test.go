package backendtest

import (
	"github.com/llmexport/llmexport/runtime/mnn"
)

// nonsense is a graph that every backend refuses.
type nonsense struct {
	name  string
	build func(b *builder) int32
}

// sequenceNonsense is that of the ops on sequences.
func sequenceNonsense() (list []nonsense) {
	add := func(name string, build func(b *builder) int32) { list = append(list, nonsense{name, build}) }
	add("permute of few dimensions", func(b *builder) int32 { return b.permute(cube(b), 0, 1) })
	add("permute of one twice", func(b *builder) int32 { return b.permute(cube(b), 0, 1, 1) })
	add("permute out of range", func(b *builder) int32 { return b.permute(cube(b), 0, 1, 3) })
	channels := func(name string, x, kernels, bias func(b *builder) int32) {
		add("each channel "+name, func(b *builder) int32 { return b.op(mnn.OpDepthwise, depthwise(2, 3, 1), x(b), kernels(b), bias(b)) })
	}
	floats := func(dims ...int32) func(b *builder) int32 {
		n := int32(1)
		for _, d := range dims {
			n *= d
		}
		return func(b *builder) int32 { return b.floats(iota32(int(n)), dims...) }
	}
	channels("of three dimensions", cube, floats(2, 1, 3, 3), floats(2))
	channels("of others", floats(1, 3, 4, 4), floats(2, 1, 3, 3), floats(2))
	channels("with other kernels", floats(1, 2, 4, 4), floats(2, 1, 5, 5), floats(2))
	channels("with one bias", floats(1, 2, 4, 4), floats(2, 1, 3, 3), floats(1))
	channels("of integers", func(b *builder) int32 { return b.ints(make([]int32, 32), 1, 2, 4, 4) }, floats(2, 1, 3, 3), floats(2))
	reduce := func(name string, x func(b *builder) int32, p mnn.Reduction, more int) {
		add("reduction "+name, func(b *builder) int32 {
			in := []int32{x(b)}
			for range more {
				in = append(in, b.list(0))
			}
			return b.op(mnn.OpReduction, &p, in...)
		})
	}
	reduce("out of range", cube, mnn.Reduction{Dims: []int32{3}}, 0)
	reduce("by an input", cube, mnn.Reduction{}, 1)
	reduce("of integers", func(b *builder) int32 { return b.list(1, 2) }, mnn.Reduction{Dims: []int32{0}}, 0)
	reduce("of another kind", cube, mnn.Reduction{Op: 2, Dims: []int32{0}}, 0)
	top := func(name string, p mnn.TopK, in func(b *builder) []int32) {
		add("top-k "+name, func(b *builder) int32 { return b.reshape(b.ops(2, mnn.OpTopKV2, &p, in(b)...), -1) })
	}
	largest := mnn.TopK{Sorted: true, Largest: true}
	top("of more than there are", largest, func(b *builder) []int32 { return []int32{cube(b), b.scalar(5)} })
	top("of none", largest, func(b *builder) []int32 { return []int32{cube(b), b.scalar(0)} })
	top("by floats", largest, func(b *builder) []int32 { return []int32{cube(b), b.floats([]float32{1})} })
	top("of integers", largest, func(b *builder) []int32 { return []int32{b.list(1, 2), b.scalar(1)} })
	top("along an axis", largest, func(b *builder) []int32 { return []int32{cube(b), b.scalar(1), b.scalar(1)} })
	top("of a scalar", largest, func(b *builder) []int32 { return []int32{b.floats([]float32{1}), b.scalar(1)} })
	top("of the smallest", mnn.TopK{Sorted: true}, func(b *builder) []int32 { return []int32{cube(b), b.scalar(1)} })
	elements := func(name string, in func(b *builder) []int32) {
		add("gather of elements "+name, func(b *builder) int32 { return b.op(mnn.OpGatherElements, nil, in(b)...) })
	}
	elements("out of range", func(b *builder) []int32 {
		return []int32{cube(b), b.ints([]int32{0, 0, 4, 0, 0, 0}, 2, 3, 1), b.scalar(2)}
	})
	elements("before the first", func(b *builder) []int32 {
		return []int32{cube(b), b.ints([]int32{0, 0, -1, 0, 0, 0}, 2, 3, 1), b.scalar(2)}
	})
	elements("of another shape", func(b *builder) []int32 { return []int32{cube(b), b.ints([]int32{0, 0}, 2, 1, 1), b.scalar(2)} })
	elements("of another rank", func(b *builder) []int32 { return []int32{cube(b), b.list(0), b.scalar(0)} })
	elements("along no axis", func(b *builder) []int32 { return []int32{cube(b), b.ints(make([]int32, 6), 2, 3, 1), b.scalar(3)} })
	elements("by floats", func(b *builder) []int32 { return []int32{cube(b), cube(b), b.scalar(0)} })
	elements("of integers", func(b *builder) []int32 { return []int32{b.list(1, 2), b.list(1, 0), b.scalar(0)} })
	product := func(name string, in func(b *builder) []int32) {
		add("product "+name, func(b *builder) int32 { return b.op(mnn.OpBatchMatMul, &mnn.BatchMatMul{}, in(b)...) })
	}
	product("of other lengths", func(b *builder) []int32 { return []int32{cube(b), cube(b)} })
	product("of other batches", func(b *builder) []int32 { return []int32{cube(b), b.floats(iota32(36), 3, 4, 3)} })
	product("with a vector", func(b *builder) []int32 { return []int32{cube(b), b.floats(iota32(4), 4)} })
	product("of integers", func(b *builder) []int32 {
		return []int32{b.ints(make([]int32, 4), 2, 2), b.ints(make([]int32, 4), 2, 2)}
	})
	product("with a bias", func(b *builder) []int32 { return []int32{cube(b), b.floats(iota32(4), 4, 1), b.floats(iota32(1), 1)} })
	recurrence := func(name string, change func(p *mnn.LinearAttention, in []int32, b *builder) []int32) {
		add("recurrence "+name, func(b *builder) int32 {
			p := &mnn.LinearAttention{Type: mnn.GatedDeltaRule, KeyHeads: 1, ValueHeads: 2, KeyDim: 4, ValueDim: 3}
			in := []int32{b.floats(random(1, 14), 1, 14, 1), b.floats(random(2, 2), 1, 1, 2), b.floats(random(3, 2), 1, 1, 2), b.floats(random(4, 42), 14, 1, 3)}
			return b.op(mnn.OpLinearAttention, p, change(p, in, b)...)
		})
	}
	recurrence("of other channels", func(p *mnn.LinearAttention, in []int32, _ *builder) []int32 { p.ValueDim = 4; return in })
	recurrence("of huge heads", func(p *mnn.LinearAttention, in []int32, _ *builder) []int32 { p.KeyDim = 1 << 30; return in })
	recurrence("of no heads", func(p *mnn.LinearAttention, in []int32, _ *builder) []int32 { p.KeyHeads = 0; return in })
	recurrence("of another type", func(p *mnn.LinearAttention, in []int32, _ *builder) []int32 { p.Type = "lightning"; return in })
	recurrence("without weights", func(_ *mnn.LinearAttention, in []int32, _ *builder) []int32 { return in[:3] })
	recurrence("of more tokens", func(_ *mnn.LinearAttention, in []int32, b *builder) []int32 {
		in[0] = b.floats(random(1, 28), 1, 14, 2)
		return in
	})
	recurrence("with one tap", func(_ *mnn.LinearAttention, in []int32, b *builder) []int32 {
		in[3] = b.floats(random(1, 14), 14, 1, 1)
		return in
	})
	recurrence("with integer gates", func(_ *mnn.LinearAttention, in []int32, b *builder) []int32 {
		in[1] = b.ints([]int32{0, 0}, 1, 1, 2)
		return in
	})
	recurrence("convolution of several heads", func(p *mnn.LinearAttention, in []int32, _ *builder) []int32 { p.Type = mnn.ShortConv; return in })
	experts := func(name string, change func(p *mnn.MoE, in []int32, b *builder) []int32) {
		add("experts "+name, func(b *builder) int32 {
			p := &mnn.MoE{Layer: 1, Experts: 2, TopK: 1}
			for j := range p.Experts {
				sub := &builder{}
				x := sub.op(mnn.OpInput, &mnn.Input{DType: mnn.DTFloat, Format: mnn.NCHW})
				y := sub.binary(mnn.BinaryAdd, x, x)
				b.Subgraphs = append(b.Subgraphs, mnn.Subgraph{Name: p.Expert(j), Inputs: []int32{x}, Outputs: []int32{y}, Tensors: sub.Tensors, Ops: sub.Ops})
			}
			in := []int32{b.floats(random(1, 4), 1, 4), b.floats([]float32{1}, 1, 1), b.ints([]int32{1}, 1, 1)}
			return b.op(mnn.OpMoE, p, change(p, in, b)...)
		})
	}
	experts("that are missing", func(_ *mnn.MoE, in []int32, b *builder) []int32 { b.Subgraphs[1].Name = "other"; return in })
	experts("without number", func(p *mnn.MoE, in []int32, _ *builder) []int32 { p.Experts = 1 << 30; return in })
	experts("of which none is chosen", func(p *mnn.MoE, in []int32, _ *builder) []int32 { p.TopK = 0; return in })
	experts("without an output", func(_ *mnn.MoE, in []int32, b *builder) []int32 { b.Subgraphs[0].Outputs = nil; return in })
	experts("of another width", func(_ *mnn.MoE, in []int32, b *builder) []int32 {
		s := &b.Subgraphs[1]
		sub := &builder{Graph: mnn.Graph{Tensors: s.Tensors, Ops: s.Ops}}
		s.Outputs = []int32{sub.concat(1, s.Inputs[0], s.Inputs[0])}
		s.Tensors, s.Ops = sub.Tensors, sub.Ops
		return in
	})
	experts("with a state", func(_ *mnn.MoE, in []int32, b *builder) []int32 {
		b.Subgraphs[0].Ops[1].Type = mnn.OpAttention
		return in
	})
	experts("chosen out of range", func(_ *mnn.MoE, in []int32, b *builder) []int32 { in[2] = b.ints([]int32{2}, 1, 1); return in })
	experts("chosen by floats", func(_ *mnn.MoE, in []int32, b *builder) []int32 { in[2] = in[1]; return in })
	experts("chosen for other rows", func(_ *mnn.MoE, in []int32, b *builder) []int32 { in[2] = b.ints([]int32{0, 1}, 2, 1); return in })
	experts("of integers", func(_ *mnn.MoE, in []int32, b *builder) []int32 { in[0] = b.ints(make([]int32, 4), 1, 4); return in })
	experts("of two inputs", func(_ *mnn.MoE, in []int32, _ *builder) []int32 { return in[:2] })
	return list
}
