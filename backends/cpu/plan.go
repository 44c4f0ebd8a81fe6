package cpu

import (
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// planner turns nodes into the steps of a frame.
type planner struct {
	e      *executable
	f      *frame
	tokens int // of all states
	places []place
	// uses counts the reads of each tensor that are still to come.
	uses []int
	left []int // of a dynamic tensor: reads by evaluated ops and others that have no step yet
	// free memory may hold the next tensor; that of done may do so after the stage, whose rows run at different times.
	free, done [][]float32
	stage      *stage
	// views has the positions of the patches of views, and then their heights and widths.
	views []int32
}

// errUnfused is returned where shapes are not those of a fused node.
var errUnfused = fmt.Errorf("fused ops of unexpected shape: %w", tensor.ErrUnsupported)

// plan makes the steps of a frame for its key.
func (e *executable) plan(f *frame, nodes []node) error {
	p := &planner{
		e: e, f: f, tokens: f.key.tokens * f.key.states,
		places: make([]place, len(e.g.Tensors)), uses: make([]int, len(e.g.Tensors)),
		left: make([]int, len(e.g.Tensors)),
	}
	for _, n := range nodes {
		for _, t := range n.inputs {
			p.uses[t]++
		}
	}
	p.uses[e.logits]++
	if e.deep >= 0 {
		p.uses[e.deep]++
	}
	last := -1
	if f.key.deferred && e.g.Tensors[e.logits] != mnn.SentenceOutput {
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
	if e.deep >= 0 {
		if out = &p.places[e.deep]; !out.float() {
			return fmt.Errorf("%s are integers: %w", mnn.DeepRows, tensor.ErrCorrupt)
		}
		f.further = out.floats()
	}
	return nil
}

// arity is the smallest number of inputs of the ops that index theirs.
var arity = map[mnn.OpType]int{
	mnn.OpCast: 1, mnn.OpRange: 3, mnn.OpReLU: 1, mnn.OpSoftmax: 1,
	mnn.OpBatchMatMul: 2, mnn.OpGatherElements: 2, mnn.OpMoE: 3, mnn.OpPermute: 1, mnn.OpReduction: 1, mnn.OpTopKV2: 2,
	mnn.OpBinaryOp: 2, mnn.OpConvolution: 1, mnn.OpDepthwise: 3, mnn.OpLayerNorm: 1, mnn.OpUnaryOp: 1}

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
	case nodeFull:
		return p.fullAttention(n)
	}
	if p.e.dynamic[n.op] && op.Type != mnn.OpInput {
		p.dynamic(n, op)
		return nil
	}
	switch prm := op.Param.(type) {
	case *mnn.Input:
		return p.input(n, op, prm)
	case *mnn.Blob:
		c := &p.e.consts[n.op]
		return p.put(n, place{shape: c.Shape, f: c.Floats, known: c.Ints})
	case *mnn.LayerNorm:
		return p.norm(n, op)
	case *mnn.Binary:
		return p.binary(n, prm)
	case *mnn.Unary:
		return p.unary(n, prm.Op)
	case *mnn.Relu:
		return p.relu(n, prm)
	case *mnn.Cast:
		return p.cast(n, prm)
	case *mnn.Range:
		return p.counts(n, op)
	case *mnn.Axis:
		if op.Type == mnn.OpSoftmax {
			return p.softmax(n, prm)
		}
	case *mnn.Attention:
		return p.attention(n, prm)
	case *mnn.RoPE:
		return p.rope(n, prm)
	case *mnn.BatchMatMul:
		return p.matMul(n, prm)
	case *mnn.LinearAttention:
		return p.recurrence(n, prm)
	case *mnn.MoE:
		return p.moe(n, prm)
	case *mnn.Permute:
		return p.permute(n, prm)
	case *mnn.Depthwise:
		return p.depthwise(n, prm)
	case *mnn.Reduction:
		return p.reduction(n, prm)
	case *mnn.TopK:
		return p.topK(n, prm)
	}
	if op.Type == mnn.OpGatherElements {
		return p.gatherElements(n)
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
		if p.uses[t] == 0 { // nothing reads it, so it is released here
			v.buffer.uses++
			p.release(v.buffer)
		}
	}
}

// step appends a step of its own.
func (p *planner) step(s step) {
	p.flush()
	p.f.steps = append(p.f.steps, s)
}

// input returns an input as the engine feeds it: pictures, features of sound [1, features, frames], embeddings [tokens, 1, hidden], a mask
// of rank 0 that means causal or those of ops.WindowMask or of a text without padding, positions [1, tokens], and the index of the first
// position whose logits are wanted.
func (p *planner) input(n *node, op *mnn.Op, prm *mnn.Input) error {
	if p.e.expert {
		p.flush()
		v := p.make(p.tokens, p.f.key.width)
		v.buffer.uses++ // calls write it before the first step
		p.f.embeddings = append(p.f.embeddings, v.floats())
		return p.put(n, v)
	}
	switch op.Name {
	case mnn.PicturesInput, mnn.TilesInput:
		shape, err := ops.Pictures(prm, p.tokens, p.tokens*p.f.key.width)
		if err != nil {
			return err
		}
		if ops.OfViews(prm) {
			p.views = make([]int32, p.tokens*(shape[3]/shape[2]+2))
			p.f.positions = append(p.f.positions, p.views)
		}
		p.flush()
		v := p.make(shape...)
		v.buffer.uses++ // calls write it before the first step
		p.f.embeddings = append(p.f.embeddings, v.floats())
		return p.put(n, v)
	case "input_ids", mnn.PatchesInput, mnn.PaddedInput, mnn.FeaturesInput:
		p.flush()
		v := p.make(p.tokens, 1, p.f.key.width)
		switch op.Name {
		case mnn.PatchesInput:
			v.shape = []int{p.tokens, p.f.key.width}
		case mnn.PaddedInput:
			v.shape = []int{1, p.tokens, p.f.key.width}
		case mnn.FeaturesInput:
			v.shape = ops.Features(prm, p.tokens, p.f.key.width)
		}
		v.buffer.uses++ // calls write it before the first step
		p.f.embeddings = append(p.f.embeddings, v.floats())
		return p.put(n, v)
	case mnn.DeepInput:
		p.flush()
		v := p.make(int(prm.Dims[0]), p.tokens, int(prm.Dims[2]))
		v.buffer.uses++ // calls write it before the first step
		p.f.deep = append(p.f.deep, v.floats())
		return p.put(n, v)
	case "attention_mask":
		if ops.EveryPair(op.Param.(*mnn.Input)) {
			return p.put(n, place{shape: []int{1, p.tokens, p.tokens}, f: make([]float32, p.tokens*p.tokens)})
		}
		if w := p.e.options.Window; w > 0 {
			p.dynamicOutputs(n)
			p.step(&maskStep{op: op, outputs: n.outputs, window: w, tokens: p.f.key.tokens})
			return nil
		}
		if prm.OfTexts() {
			return p.put(n, place{shape: []int{1, 1, 1, p.tokens}, f: make([]float32, p.tokens)})
		}
		return p.put(n, place{shape: []int{}, f: []float32{0}})
	case mnn.SizesInput:
		if len(p.views) == 0 {
			return fmt.Errorf("sizes of views before the views: %w", tensor.ErrUnsupported)
		}
		return p.put(n, place{shape: []int{p.tokens, 2}, ints: p.views[len(p.views)-2*p.tokens:]})
	case "position_ids", mnn.PlacesInput:
		if len(p.views) > 0 {
			return p.put(n, place{shape: []int{p.tokens, len(p.views)/p.tokens - 2}, ints: p.views[:len(p.views)-2*p.tokens]})
		}
		axes := ops.Axes(op.Param.(*mnn.Input))
		ids := make([]int32, axes*p.tokens)
		p.f.positions = append(p.f.positions, ids)
		if op.Name == mnn.PlacesInput {
			return p.put(n, place{shape: []int{1, p.tokens, axes}, ints: ids})
		}
		return p.put(n, place{shape: []int{axes, p.tokens}, ints: ids})
	default:
		index := int32(-1)
		if p.f.key.all {
			index = 0
		}
		return p.put(n, place{shape: []int{1}, known: []int32{index}})
	}
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
