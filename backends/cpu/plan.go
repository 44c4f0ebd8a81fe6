package cpu

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// place is what a plan knows of a tensor. Floats lie in f or, from off on, in a buffer; integers are known, or computed by
// every call in ints.
type place struct {
	shape  []int
	f      []float32
	buffer *buffer
	off    int
	known  []int32
	ints   []int32
}

func (p *place) float() bool { return p.known == nil && p.ints == nil }

func (p *place) count() int { return generic.Count(p.shape) }

// floats is the memory of p, which has to be there: see planner.flush.
func (p *place) floats() []float32 {
	if p.buffer == nil {
		return p.f
	}
	return p.buffer.mem[p.off : p.off+p.count()]
}

// buffer is what a tensor and its views lie in: memory of the frame, or a slot of the workers of a stage.
type buffer struct {
	size int
	mem  []float32 // nil for a slot
	uses int       // reads that are still to come
	// Of a buffer that an op of a stage makes: its first and last op, and whether it has to be in memory.
	stage       *stage
	first, last int
	pinned      bool
	slot        int
}

// planner turns nodes into the steps of a frame.
type planner struct {
	e      *executable
	f      *frame
	tokens int // of all states
	places []place
	// uses counts the reads of each tensor that are still to come.
	uses []int
	// free memory may hold the next tensor; that of done may do so behind the stage, whose rows run at different times.
	free, done [][]float32
	stage      *stage
}

// errUnfused says that shapes are not those of a fused node.
var errUnfused = fmt.Errorf("fused ops of unexpected shape: %w", tensor.ErrUnsupported)

// plan makes the steps of a frame for its key.
func (e *executable) plan(f *frame, nodes []node) error {
	p := &planner{
		e: e, f: f, tokens: f.key.tokens * f.key.states,
		places: make([]place, len(e.g.Tensors)), uses: make([]int, len(e.g.Tensors)),
	}
	for _, n := range nodes {
		for _, t := range n.inputs {
			p.uses[t]++
		}
	}
	p.uses[e.logits]++
	last := -1
	if f.key.deferred {
		last = e.headOf(nodes)
	}
	for i := range nodes {
		n := &nodes[i]
		op := &e.g.Ops[n.op]
		if i == last {
			if err := p.head(n); err != nil {
				return fmt.Errorf("op %s (%v): %w", op.Name, op.Type, err)
			}
			return nil
		}
		if err := p.node(n, op); err != nil {
			return fmt.Errorf("op %s (%v): %w", op.Name, op.Type, err)
		}
		if f.key.peaks {
			p.peaks(n, op)
		}
		if f.key.observed {
			p.observe(n, op)
		}
		for _, t := range n.inputs {
			p.read(t)
		}
	}
	p.flush()
	out := &p.places[e.logits]
	if !out.float() {
		return fmt.Errorf("logits are integers: %w", tensor.ErrCorrupt)
	}
	f.logits = out.floats()
	return nil
}

// arity is the smallest number of inputs of the ops that index theirs.
var arity = map[mnn.OpType]int{mnn.OpBinaryOp: 2, mnn.OpConvolution: 1, mnn.OpLayerNorm: 1, mnn.OpUnaryOp: 1}

func (p *planner) node(n *node, op *mnn.Op) error {
	if len(n.inputs) < arity[op.Type] {
		return fmt.Errorf("%d inputs: %w", len(n.inputs), tensor.ErrCorrupt)
	}
	switch n.kind {
	case nodeRotary:
		return p.rotary(n)
	case nodeSiluMul:
		return p.siluMul(n)
	case nodeLinears:
		return p.linears(n)
	}
	want := 1
	switch prm := op.Param.(type) {
	case *mnn.LayerNorm:
		want = 0 // norm counts
	case *mnn.RoPE:
		want = 2
	case *mnn.Blob:
		c := &p.e.consts[n.op]
		return p.put(n, place{shape: c.Shape, f: c.Floats, known: c.Ints})
	default:
		_ = prm
	}
	if want > 0 && len(op.Outputs) != want {
		return fmt.Errorf("%d outputs, the graph wants %d: %w", want, len(op.Outputs), tensor.ErrCorrupt)
	}
	switch prm := op.Param.(type) {
	case *mnn.Input:
		return p.input(n, op.Name)
	case *mnn.LayerNorm:
		return p.norm(n, op)
	case *mnn.Binary:
		return p.binary(n, prm.Op)
	case *mnn.Unary:
		return p.unary(n, prm.Op)
	case *mnn.Attention:
		return p.attention(n, prm)
	case *mnn.RoPE:
		return p.rope(n, prm)
	}
	return p.move(n, op)
}

// in is the place of an input.
func (p *planner) in(n *node, k int) *place { return &p.places[n.inputs[k]] }

// put makes v the node's only output.
func (p *planner) put(n *node, v place) error {
	if len(n.outputs) != 1 {
		return fmt.Errorf("1 outputs, the graph wants %d: %w", len(n.outputs), tensor.ErrCorrupt)
	}
	p.set(n.outputs[0], v)
	return nil
}

func (p *planner) set(t int32, v place) {
	p.places[t] = v
	if v.buffer != nil {
		v.buffer.uses += p.uses[t]
		if p.uses[t] == 0 { // somebody has to give it back
			v.buffer.uses++
			p.release(v.buffer)
		}
	}
}

// make is a place for an output of the next op of the stage or, without one, of a step.
func (p *planner) make(shape ...int) place {
	b := &buffer{size: generic.Count(shape), stage: p.stage}
	if p.stage == nil {
		p.allocate(b)
	} else {
		b.first, b.last = len(p.stage.ops), len(p.stage.ops)
		p.stage.made = append(p.stage.made, b)
	}
	return place{shape: shape, buffer: b}
}

// allocate gives b the memory that fits best.
func (p *planner) allocate(b *buffer) {
	best := -1
	for i, m := range p.free {
		if cap(m) >= b.size && (best < 0 || cap(m) < cap(p.free[best])) {
			best = i
		}
	}
	if best >= 0 && cap(p.free[best]) <= 2*b.size+1024 {
		b.mem = p.free[best][:b.size]
		p.free = slices.Delete(p.free, best, best+1)
		return
	}
	b.mem = make([]float32, b.size)
	p.f.bytes += 4 * int64(b.size)
}

// read notes that one reader of t is through.
func (p *planner) read(t int32) {
	if b := p.places[t].buffer; b != nil {
		p.release(b)
	}
}

func (p *planner) release(b *buffer) {
	if b.uses--; b.uses > 0 || b.mem == nil {
		return
	}
	if p.stage != nil {
		p.done = append(p.done, b.mem[:0])
		return
	}
	p.free = append(p.free, b.mem[:0])
}

// step appends a step of its own.
func (p *planner) step(s step) {
	p.flush()
	p.f.steps = append(p.f.steps, s)
}

// input is what the engine feeds: embeddings [tokens, 1, hidden], a mask of rank 0 that means causal, positions
// [1, tokens], and the index of the first position whose logits are wanted.
func (p *planner) input(n *node, name string) error {
	switch name {
	case "input_ids":
		p.flush()
		v := p.make(p.tokens, 1, p.f.key.width)
		v.buffer.uses++ // calls write it before the first step
		p.f.embeddings = append(p.f.embeddings, v.floats())
		return p.put(n, v)
	case "attention_mask":
		return p.put(n, place{shape: []int{}, f: []float32{0}})
	case "position_ids":
		ids := make([]int32, p.tokens)
		p.f.positions = append(p.f.positions, ids)
		return p.put(n, place{shape: []int{1, p.tokens}, ints: ids})
	default:
		index := int32(-1)
		if p.f.key.all {
			index = 0
		}
		return p.put(n, place{shape: []int{1}, known: []int32{index}})
	}
}

// move follows the elements through an op that moves them: it becomes another view of the same memory, or copies.
func (p *planner) move(n *node, op *mnn.Op) error {
	if op.Type == mnn.OpGatherV2 && len(n.inputs) >= 2 && p.in(n, 1).ints != nil {
		return p.gather(n)
	}
	first := 0 // inputs from here on are indices and shapes, and have to be known
	switch op.Type {
	case mnn.OpConcat:
		first = len(n.inputs)
	default:
		first = 1
	}
	in := make([]generic.Tensor, len(n.inputs))
	from := make([]int, len(n.inputs)) // number of an input's first element
	total, known, float := 0, true, false
	for k := range n.inputs {
		v := p.in(n, k)
		in[k] = generic.Tensor{Shape: v.shape, Ints: v.known}
		from[k] = total
		if k >= first {
			if v.ints != nil {
				return fmt.Errorf("shape or index that depends on positions: %w", tensor.ErrUnsupported)
			}
			continue // floats here are refused by Move
		}
		float = float || v.float()
		if v.known == nil {
			known = false
		}
		total += generic.Count(v.shape)
	}
	if len(n.inputs) == 0 {
		_, err := generic.Move(op, in)
		return err
	}
	if float || !known {
		switch op.Type {
		case mnn.OpReshape, mnn.OpSqueeze, mnn.OpUnsqueeze, mnn.OpConvertTensor, mnn.OpShape, mnn.OpRank:
			in[0].Ints = nil // only the shape counts
		default:
			if total > maxMoved {
				return fmt.Errorf("%d elements to move: %w", total, tensor.ErrUnsupported)
			}
			for k := range in[:min(first, len(in))] {
				if v := p.in(n, k); v.float() != float {
					return fmt.Errorf("floats and integers: %w", tensor.ErrCorrupt)
				}
				in[k].Ints = numbers(from[k], generic.Count(in[k].Shape))
			}
		}
	}
	out, err := generic.Move(op, in)
	if err != nil {
		return err
	}
	x := p.in(n, 0)
	switch {
	case op.Type == mnn.OpShape || op.Type == mnn.OpRank || known && !float:
		return p.put(n, place{shape: out.Shape, known: out.Ints})
	case in[0].Ints == nil: // a view
		v := *x
		v.shape = out.Shape
		return p.put(n, v)
	}
	return p.copies(n, out, from)
}

// maxMoved bounds the elements that are followed one by one.
const maxMoved = 1 << 28

func numbers(from, n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(from + i)
	}
	return v
}

// copies turns the numbers of elements into copies of runs.
func (p *planner) copies(n *node, out generic.Tensor, from []int) error {
	var runs []run
	for at := 0; at < len(out.Ints); {
		src := int(out.Ints[at])
		input := sourceOf(from, src)
		length := 1
		for at+length < len(out.Ints) && int(out.Ints[at+length]) == src+length && sourceOf(from, src+length) == input {
			length++
		}
		runs = append(runs, run{input: input, to: at, from: src - from[input], length: length})
		at += length
	}
	x := p.in(n, 0)
	if len(runs) == 1 {
		r := runs[0]
		v := *p.in(n, r.input)
		v.shape = out.Shape
		switch {
		case v.buffer != nil:
			v.off += r.from
			v.buffer.pinned = true
		case v.float():
			v.f = v.f[r.from : r.from+r.length : r.from+r.length]
		default:
			v.ints = v.ints[r.from : r.from+r.length]
		}
		return p.put(n, v)
	}
	if x.float() {
		p.flush()
		v := p.make(out.Shape...)
		c := &copyStep[float32]{dst: v.floats(), runs: runs}
		for k := range from {
			c.src = append(c.src, p.in(n, k).floats())
		}
		p.step(c)
		return p.put(n, v)
	}
	v := place{shape: out.Shape, ints: make([]int32, len(out.Ints))}
	c := &copyStep[int32]{dst: v.ints, runs: runs}
	for k := range from {
		src := p.in(n, k)
		if src.ints == nil {
			src.ints = src.known
		}
		c.src = append(c.src, src.ints)
	}
	p.step(c)
	return p.put(n, v)
}

// sourceOf is the input that an element belongs to.
func sourceOf(from []int, element int) int {
	k := len(from) - 1
	for k > 0 && from[k] > element {
		k--
	}
	return k
}

// gather takes rows that depend on positions.
func (p *planner) gather(n *node) error {
	table, index := p.in(n, 0), p.in(n, 1)
	if !table.float() {
		return fmt.Errorf("gather of integers by positions: %w", tensor.ErrUnsupported)
	}
	if len(n.inputs) > 2 {
		if a := p.in(n, 2).known; len(a) != 1 || a[0] != 0 {
			return fmt.Errorf("gather by positions along another axis than the first: %w", tensor.ErrUnsupported)
		}
	}
	if len(table.shape) == 0 {
		return fmt.Errorf("gather from a scalar: %w", tensor.ErrCorrupt)
	}
	shape := append(slices.Clone(index.shape), table.shape[1:]...)
	if err := generic.Limited(shape); err != nil {
		return err
	}
	p.flush()
	v := p.make(shape...)
	p.step(&gatherStep{dst: v.floats(), table: table.floats(), index: index.ints, rows: table.shape[0]})
	return p.put(n, v)
}

func (p *planner) observe(n *node, op *mnn.Op) {
	for _, t := range n.outputs {
		if b := p.places[t].buffer; b != nil {
			b.pinned = true
		}
	}
	p.flush()
	for k, t := range n.outputs {
		if v := &p.places[t]; v.float() {
			p.f.steps = append(p.f.steps, &observeStep{op: op, output: k, shape: v.shape, values: v.floats()})
		}
	}
}
