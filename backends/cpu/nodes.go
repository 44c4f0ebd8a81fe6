package cpu

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/mnn"
)

// node is an op, or several that are computed together, which a plan turns into steps.
type node struct {
	op      int // of the graph; the last one of those that are fused
	kind    nodeKind
	inputs  []int32
	outputs []int32
	// members of a group of linear layers, as ops.
	members []int
	half    int // of rotary: half the head dimension
}

type nodeKind int

const (
	nodeOp      nodeKind = iota
	nodeRotary           // inputs x, cos, sin: x*cos + concat(-x[half:], x[:half])*sin
	nodeSiluMul          // inputs gate, up: silu(gate)*up
	nodeLinears          // input x, one output for each member
	nodeFull             // inputs q, k, v: softmax(q kᵀ) v of heads that lie next to each other
)

func plainNodes(g *mnn.Graph, live []bool) []node {
	var list []node
	for i := range g.Ops {
		if !live[i] {
			continue
		}
		op := &g.Ops[i]
		n := node{op: i, inputs: op.Inputs, outputs: op.Outputs}
		if op.Type == mnn.OpConvolution {
			n.kind, n.members = nodeLinears, []int{i}
		}
		list = append(list, n)
	}
	return list
}

// fuser knows who makes and who reads a tensor.
type fuser struct {
	e      *executable
	nodes  []node
	maker  map[int32]int // node by tensor
	uses   map[int32]int
	absorb []bool // nodes that became part of another
}

// fuse joins nodes where nothing else reads what lies between them; attention to all keys only if full is set, because its scores are
// nowhere in memory then.
func (e *executable) fuse(plain []node, full bool) []node {
	f := &fuser{e: e, nodes: slices.Clone(plain), maker: make(map[int32]int), uses: map[int32]int{e.logits: 1, e.deep: 1}, absorb: make([]bool, len(plain))}
	for i, n := range plain {
		for _, t := range n.outputs {
			f.maker[t] = i
		}
		for _, t := range n.inputs {
			f.uses[t]++
		}
	}
	for i := range f.nodes {
		if !e.dynamic[f.nodes[i].op] && !f.rotary(i) && !(full && f.fullAttention(i)) {
			f.siluMul(i)
		}
	}
	f.linears()
	var list []node
	for i, n := range f.nodes {
		if !f.absorb[i] {
			list = append(list, n)
		}
	}
	return list
}

// made is the node that makes t if it is an op of the type that nothing else reads.
func (f *fuser) made(t int32, typ mnn.OpType) (int, *mnn.Op, bool) {
	i, ok := f.maker[t]
	if !ok || f.uses[t] != 1 || f.absorb[i] || f.e.dynamic[f.nodes[i].op] || f.nodes[i].kind != nodeOp {
		return 0, nil, false
	}
	op := &f.e.g.Ops[f.nodes[i].op]
	return i, op, op.Type == typ
}

func (f *fuser) binary(t int32, want mnn.BinaryOp) (int, *mnn.Op, bool) {
	i, op, ok := f.made(t, mnn.OpBinaryOp)
	return i, op, ok && op.Param.(*mnn.Binary).Op == want && len(op.Inputs) == 2
}

// integer is the value of a constant of one integer.
func (f *fuser) integer(t int32) (int, bool) {
	i, ok := f.maker[t]
	if !ok {
		return 0, false
	}
	c := f.e.consts[f.nodes[i].op].Ints
	if len(c) != 1 {
		return 0, false
	}
	return int(c[0]), true
}

// slice wants t to be x[..., from:to] along the last of four dimensions.
func (f *fuser) slice(t int32) (node int, x int32, from, to int, ok bool) {
	node, op, ok := f.made(t, mnn.OpStridedSlice)
	if !ok || len(op.Inputs) != 5 {
		return 0, 0, 0, 0, false
	}
	p := op.Param.(*mnn.StridedSlice)
	if p.FromType != 1 || p.BeginMask|p.EndMask|p.EllipsisMask|p.NewAxisMask|p.ShrinkAxisMask != 0 {
		return 0, 0, 0, 0, false
	}
	var arg [4]int
	for k := range arg {
		if arg[k], ok = f.integer(op.Inputs[k+1]); !ok {
			return 0, 0, 0, 0, false
		}
	}
	return node, op.Inputs[0], arg[0], arg[1], arg[2] == 3 && arg[3] == 1
}

// rotary finds x*cos + concat(-x[half:], x[:half])*sin.
func (f *fuser) rotary(i int) bool {
	n := &f.nodes[i]
	op := &f.e.g.Ops[n.op]
	p, ok := op.Param.(*mnn.Binary)
	if !ok || p.Op != mnn.BinaryAdd || len(op.Inputs) != 2 {
		return false
	}
	cosNode, cosOp, ok1 := f.binary(op.Inputs[0], mnn.BinaryMul)
	sinNode, sinOp, ok2 := f.binary(op.Inputs[1], mnn.BinaryMul)
	if !ok1 || !ok2 {
		return false
	}
	concat, turned, ok := f.made(sinOp.Inputs[0], mnn.OpConcat)
	if !ok || len(turned.Inputs) != 2 || turned.Param.(*mnn.Axis).Axis != 3 {
		return false
	}
	neg, negOp, ok := f.made(turned.Inputs[0], mnn.OpUnaryOp)
	if !ok || negOp.Param.(*mnn.Unary).Op != mnn.UnaryNeg {
		return false
	}
	second, x2, half, end, ok2 := f.slice(negOp.Inputs[0])
	first, x1, zero, to, ok1 := f.slice(turned.Inputs[1])
	x := cosOp.Inputs[0]
	if !ok1 || !ok2 || x1 != x || x2 != x || zero != 0 || to != half || half <= 0 || end < 2*half {
		return false
	}
	for _, k := range []int{cosNode, sinNode, concat, neg, second, first} {
		f.absorb[k] = true
	}
	n.kind, n.inputs, n.half = nodeRotary, []int32{x, cosOp.Inputs[1], sinOp.Inputs[1]}, half
	return true
}

// siluMul finds silu(gate)*up, in the two orders that graphs have.
func (f *fuser) siluMul(i int) {
	n := &f.nodes[i]
	op := &f.e.g.Ops[n.op]
	p, ok := op.Param.(*mnn.Binary)
	if !ok || len(op.Inputs) != 2 {
		return
	}
	switch p.Op {
	case mnn.BinaryMulSilu:
		n.kind, n.inputs = nodeSiluMul, []int32{op.Inputs[1], op.Inputs[0]}
	case mnn.BinaryMul:
		for k, t := range op.Inputs {
			j, silu, ok := f.made(t, mnn.OpUnaryOp)
			if ok && silu.Param.(*mnn.Unary).Op == mnn.UnarySilu {
				f.absorb[j] = true
				n.kind, n.inputs = nodeSiluMul, []int32{silu.Inputs[0], op.Inputs[1-k]}
				return
			}
		}
	}
}

// swaps is the node that makes t by exchanging rows and heads, and what it reads.
func (f *fuser) swaps(t int32) (node int, x int32, ok bool) {
	node, op, ok := f.made(t, mnn.OpPermute)
	if !ok || !slices.Equal(op.Param.(*mnn.Permute).Dims, []int32{0, 2, 1, 3}) {
		return 0, 0, false
	}
	return node, op.Inputs[0], true
}

// product is the node that makes t as a product of matrices.
func (f *fuser) product(t int32, want mnn.BatchMatMul) (int, *mnn.Op, bool) {
	i, op, ok := f.made(t, mnn.OpBatchMatMul)
	return i, op, ok && *op.Param.(*mnn.BatchMatMul) == want && len(op.Inputs) == 2
}

// fullAttention finds the three ops of attention to all keys, between permutes that put heads apart.
func (f *fuser) fullAttention(i int) bool {
	n := &f.nodes[i]
	op := &f.e.g.Ops[n.op]
	prm, ok := op.Param.(*mnn.Permute)
	if !ok || !slices.Equal(prm.Dims, []int32{0, 2, 1, 3}) || len(op.Inputs) != 1 {
		return false
	}
	mix, mixOp, ok := f.product(op.Inputs[0], mnn.BatchMatMul{})
	if !ok {
		return false
	}
	soft, softOp, ok := f.made(mixOp.Inputs[0], mnn.OpSoftmax)
	if !ok {
		return false
	}
	if axis := softOp.Param.(*mnn.Axis).Axis; axis != -1 && axis != 3 {
		return false
	}
	scores, scoresOp, ok := f.product(softOp.Inputs[0], mnn.BatchMatMul{TransposeY: true})
	if !ok {
		return false
	}
	queries, q, ok1 := f.swaps(scoresOp.Inputs[0])
	keys, k, ok2 := f.swaps(scoresOp.Inputs[1])
	values, v, ok3 := f.swaps(mixOp.Inputs[1])
	if !ok1 || !ok2 || !ok3 {
		return false
	}
	for _, k := range []int{mix, soft, scores, queries, keys, values} {
		f.absorb[k] = true
	}
	n.kind, n.inputs = nodeFull, []int32{q, k, v}
	return true
}

// linears joins the layers that read the same numbers in the same way. Each group stands where its first member stood.
func (f *fuser) linears() {
	type key struct {
		root  int32
		shape string
		as    reading
	}
	leader := make(map[key]int)
	for i := range f.nodes {
		n := &f.nodes[i]
		if n.kind != nodeLinears || f.absorb[i] {
			continue
		}
		k := key{as: f.e.linears[n.op].reading()}
		k.root, k.shape = f.root(n.inputs[0])
		if j, ok := leader[k]; ok {
			f.nodes[j].members = append(f.nodes[j].members, n.op)
			f.nodes[j].outputs = append(slices.Clone(f.nodes[j].outputs), n.outputs...)
			f.absorb[i] = true
			continue
		}
		leader[k] = i
	}
}

// root follows a tensor back through conversions of the layout and through reshapes. Tensors with one root and one shape,
// the dimensions that the last reshape asked for, are equal.
func (f *fuser) root(t int32) (root int32, shape string) {
	for {
		i, ok := f.maker[t]
		if !ok || f.absorb[i] || f.nodes[i].kind != nodeOp {
			return t, shape
		}
		switch op := &f.e.g.Ops[f.nodes[i].op]; op.Type {
		case mnn.OpConvertTensor:
		case mnn.OpReshape:
			dims := op.Param.(*mnn.Reshape).Dims
			if len(op.Inputs) != 1 || slices.Contains(dims, 0) { // depends on more than the number of elements
				return t, shape
			}
			if shape == "" {
				shape = fmt.Sprint(dims)
			}
		default:
			return t, shape
		}
		t = f.nodes[i].inputs[0]
	}
}
