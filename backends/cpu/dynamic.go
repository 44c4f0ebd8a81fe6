package cpu

import (
	"fmt"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// A plan holds for a number of tokens, whatever the cache holds. Tensors whose shape depends on that, which are masks and
// what leads to them, are dynamic: the interpreter's code evaluates them in every call, once for all layers.

// shaping is the first input of an op that gives its output a shape.
var shaping = map[mnn.OpType]int{
	mnn.OpReshape: 1, mnn.OpStridedSlice: 1, mnn.OpSqueeze: 1, mnn.OpUnsqueeze: 1, mnn.OpTopKV2: 1, mnn.OpGatherV2: 2, mnn.OpGatherElements: 2, mnn.OpRange: 0,
}

// maskInput is the place of a mask among the inputs of Attention, which is the only planned op that reads dynamic tensors.
const maskInput = 3

// findDynamic says which ops are dynamic, and whether a plan is possible: not if anything but a mask needs them.
func findDynamic(g *mnn.Graph, live []bool, logits int32, window int) (dynamic []bool, ok bool) {
	dynamic = make([]bool, len(g.Ops))
	// varies says of a tensor that its elements differ between calls of the same number of tokens.
	varies, shapeless := make([]bool, len(g.Tensors)), make([]bool, len(g.Tensors))
	for i := range g.Ops {
		op := &g.Ops[i]
		if !live[i] {
			continue
		}
		varying := false
		from, shapes := shaping[op.Type]
		for k, t := range op.Inputs {
			varying = varying || varies[t]
			switch {
			case shapeless[t] && op.Type == mnn.OpAttention && k == maskInput:
			case shapeless[t], shapes && k >= from && varies[t]:
				dynamic[i] = true
			}
		}
		if op.Type == mnn.OpInput {
			varying = op.Name != "logits_index" && (op.Name != "attention_mask" || window > 0)
			dynamic[i] = op.Name == "attention_mask" && window > 0
		} else if op.Type == mnn.OpShape || op.Type == mnn.OpRank {
			varying = false
		} else if dynamic[i] && !ops.Evaluates(op.Type) {
			return nil, false
		}
		for _, t := range op.Outputs {
			varies[t], shapeless[t] = varying, dynamic[i]
		}
	}
	return dynamic, !shapeless[logits]
}

// operand is an input of a step that takes tensors whole: planned ones, and dynamic ones that a call has made before.
type operand struct {
	planned ops.Tensor
	tensor  int32 // of a dynamic one, else -1
}

// operand needs the memory of planned tensors to be there: see planner.flush.
func (p *planner) operand(n *node, k int) operand {
	v := p.in(n, k)
	if v.dynamic {
		return operand{tensor: n.inputs[k]}
	}
	o := operand{tensor: -1, planned: ops.Tensor{Shape: v.shape}}
	if v.float() {
		o.planned.Floats = v.floats()
	} else {
		o.planned.Ints = v.integers()
	}
	return o
}

func (o *operand) get(f *frame) ops.Tensor {
	if o.tensor < 0 {
		return o.planned
	}
	return f.values[o.tensor]
}

// dynamic plans the evaluation of an op.
func (p *planner) dynamic(n *node, op *mnn.Op) {
	p.flush()
	s := &evaluateStep{op: op, outputs: n.outputs}
	for k, t := range n.inputs {
		s.in = append(s.in, p.operand(n, k))
		if p.in(n, k).dynamic {
			if p.left[t]--; p.left[t] == 0 {
				s.drop = append(s.drop, t)
			}
		}
	}
	p.dynamicOutputs(n)
	p.step(s)
}

func (p *planner) dynamicOutputs(n *node) {
	for _, t := range n.outputs {
		p.places[t] = place{dynamic: true}
		p.left[t] = p.uses[t]
	}
}

// evaluateStep evaluates a dynamic op.
type evaluateStep struct {
	op      *mnn.Op
	in      []operand
	outputs []int32
	drop    []int32 // tensors that nothing reads after this
}

func (s *evaluateStep) run(f *frame) error {
	in := make([]ops.Tensor, len(s.in))
	for k := range s.in {
		in[k] = s.in[k].get(f)
	}
	out, err := ops.Evaluate(s.op, in, f.threads)
	if err != nil {
		return fmt.Errorf("op %s (%v): %w", s.op.Name, s.op.Type, err)
	}
	for _, t := range s.drop {
		f.values[t] = ops.Tensor{}
	}
	f.give(s.op, s.outputs, out)
	return nil
}

// give sets dynamic tensors.
func (f *frame) give(op *mnn.Op, outputs []int32, values []ops.Tensor) {
	for k, t := range outputs {
		f.values[t] = values[k]
		if v := values[k]; f.call.Observe != nil && v.Ints == nil {
			f.call.Observe(op, k, v.Shape, v.Floats)
		}
	}
}

// maskStep makes the masks that the engine feeds to graphs with a window. The states have the same length.
type maskStep struct {
	op             *mnn.Op
	outputs        []int32
	window, tokens int // tokens of each state
}

func (s *maskStep) run(f *frame) error {
	past, states := f.states[0].Positions, len(f.states)
	keys := past + s.tokens
	mask := ops.WindowMask(s.tokens, past, s.window)
	if states > 1 {
		part := s.tokens * keys
		all := make([]float32, 0, states*len(mask))
		for kind := range 2 {
			for range states {
				all = append(all, mask[kind*part:][:part]...)
			}
		}
		mask = all
	}
	f.give(s.op, s.outputs, []ops.Tensor{{Shape: []int{2, 1, 1, states * s.tokens, keys}, Floats: mask}})
	return nil
}
