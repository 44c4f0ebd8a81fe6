package cpu

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

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
	in := make([]ops.Tensor, len(n.inputs))
	from := make([]int, len(n.inputs)) // number of an input's first element
	total, known, float := 0, true, false
	for k := range n.inputs {
		v := p.in(n, k)
		in[k] = ops.Tensor{Shape: v.shape, Ints: v.known}
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
		total += ops.Count(v.shape)
	}
	if len(n.inputs) == 0 {
		_, err := ops.Move(op, in)
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
				in[k].Ints = numbers(from[k], ops.Count(in[k].Shape))
			}
		}
	}
	out, err := ops.Move(op, in)
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
func (p *planner) copies(n *node, out ops.Tensor, from []int) error {
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
			if p.e.tower && p.stage != nil && v.buffer.stage == p.stage {
				p.flush() // a row of the view may lie in another row of the buffer
			}
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
		src := p.in(n, k).ints
		if src == nil {
			src = p.in(n, k).known
		}
		c.src = append(c.src, src)
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
	if len(n.inputs) > 2 {
		if a := p.in(n, 2).known; len(a) != 1 || a[0] != 0 {
			return fmt.Errorf("gather by positions along another axis than the first: %w", tensor.ErrUnsupported)
		}
	}
	if len(table.shape) == 0 {
		return fmt.Errorf("gather from a scalar: %w", tensor.ErrCorrupt)
	}
	shape := append(slices.Clone(index.shape), table.shape[1:]...)
	if err := ops.Limited(shape); err != nil {
		return err
	}
	if !table.float() {
		v := place{shape: shape, ints: make([]int32, ops.Count(shape))}
		p.step(&gatherStep[int32]{dst: v.ints, table: table.integers(), index: index.ints, rows: table.shape[0]})
		return p.put(n, v)
	}
	p.flush()
	v := p.make(shape...)
	p.step(&gatherStep[float32]{dst: v.floats(), table: table.floats(), index: index.ints, rows: table.shape[0]})
	return p.put(n, v)
}

// run of elements from one input to the output of a copyStep.
type run struct{ input, to, from, length int }

type copyStep[T any] struct {
	dst  []T
	src  [][]T
	runs []run
}

func (s *copyStep[T]) run(*frame) error {
	for _, r := range s.runs {
		copy(s.dst[r.to:r.to+r.length], s.src[r.input][r.from:])
	}
	return nil
}

// gatherStep takes rows of a table by integers that depend on positions.
type gatherStep[T any] struct {
	dst, table []T
	index      []int32
	rows       int
}

func (s *gatherStep[T]) run(*frame) error {
	if len(s.index) == 0 {
		return nil
	}
	width := len(s.dst) / len(s.index)
	for i, r := range s.index {
		if r < 0 || int(r) >= s.rows {
			return fmt.Errorf("gather of row %d of %d: %w", r, s.rows, tensor.ErrCorrupt)
		}
		copy(s.dst[i*width:(i+1)*width], s.table[int(r)*width:])
	}
	return nil
}
