package ops

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// broadcast returns the common shape and, for every output element, the strides of both inputs.
func broadcast(a, b []int) (shape, sa, sb []int, err error) {
	n := max(len(a), len(b))
	shape, sa, sb = make([]int, n), make([]int, n), make([]int, n)
	stepA, stepB := 1, 1
	for k := n - 1; k >= 0; k-- {
		da, db := 1, 1
		if j := k - (n - len(a)); j >= 0 {
			da = a[j]
		}
		if j := k - (n - len(b)); j >= 0 {
			db = b[j]
		}
		if da != db && da != 1 && db != 1 {
			return nil, nil, nil, fmt.Errorf("shapes %v and %v: %w", a, b, tensor.ErrCorrupt)
		}
		shape[k] = max(da, db)
		if da == 0 || db == 0 {
			shape[k] = 0
		}
		if da > 1 {
			sa[k] = stepA
		}
		if db > 1 {
			sb[k] = stepB
		}
		stepA, stepB = stepA*da, stepB*db
	}
	return shape, sa, sb, Limited(shape)
}

// Elementwise is a binary op over the broadcast shape of its inputs. It is not safe for concurrent use.
type Elementwise[T, R any] struct {
	// Shape of the output.
	Shape []int

	a, b []int // strides of the inputs
	at   []int // position in the outer dimensions
	f    func(dst []R, x, y []T, sx, sy int)
}

// FloatElementwise prepares a binary op on floats of the shapes a and b.
func FloatElementwise(op mnn.BinaryOp, a, b []int) (*Elementwise[float32, float32], error) {
	f := floatOps[op]
	if f == nil {
		return nil, fmt.Errorf("%v of floats: %w", op, tensor.ErrUnsupported)
	}
	return newElementwise(f, a, b)
}

// IntElementwise prepares a binary op on integers of the shapes a and b.
func IntElementwise(op mnn.BinaryOp, a, b []int) (*Elementwise[int32, int32], error) {
	f := intOps[op]
	if f == nil {
		return nil, fmt.Errorf("%v of integers: %w", op, tensor.ErrUnsupported)
	}
	return newElementwise(f, a, b)
}

// FloatComparison prepares a comparison of floats of the shapes a and b, which gives 1 or 0; nil for ops that are none.
func FloatComparison(op mnn.BinaryOp, a, b []int) (*Elementwise[float32, int32], error) {
	f := comparisons[op]
	if f == nil {
		return nil, nil
	}
	return newElementwise(f, a, b)
}

// Function computes n elements of which x and y have one each, or one for all of them; the step of that is 0.
func (e *Elementwise[T, R]) Function() func(dst []R, x, y []T, sx, sy int) { return e.f }

func newElementwise[T, R any](f func(dst []R, x, y []T, sx, sy int), a, b []int) (*Elementwise[T, R], error) {
	shape, sa, sb, err := broadcast(a, b)
	if err != nil {
		return nil, err
	}
	return &Elementwise[T, R]{Shape: shape, a: sa, b: sb, at: make([]int, max(0, len(shape)-1)), f: f}, nil
}

// Do fills out, which has as many elements as Shape says, from a and b; the last dimension is the inner loop.
func (e *Elementwise[T, R]) Do(out []R, a, b []T) {
	if len(out) == 0 {
		return
	}
	last := len(e.Shape) - 1
	if last < 0 {
		e.f(out, a, b, 0, 0)
		return
	}
	inner := e.Shape[last]
	clear(e.at)
	oa, ob := 0, 0
	for lo := 0; lo < len(out); lo += inner {
		e.f(out[lo:lo+inner], a[oa:], b[ob:], e.a[last], e.b[last])
		for k := last - 1; k >= 0; k-- {
			e.at[k]++
			oa, ob = oa+e.a[k], ob+e.b[k]
			if e.at[k] < e.Shape[k] {
				break
			}
			oa, ob = oa-e.a[k]*e.Shape[k], ob-e.b[k]*e.Shape[k]
			e.at[k] = 0
		}
	}
}

// rows applies a scalar function along an inner loop.
func rows[T, R any](f func(x, y T) R) func(dst []R, x, y []T, sx, sy int) {
	return func(dst []R, x, y []T, sx, sy int) {
		for i := range dst {
			dst[i] = f(x[i*sx], y[i*sy])
		}
	}
}

var floatOps = map[mnn.BinaryOp]func(dst, x, y []float32, sx, sy int){
	mnn.BinaryAdd:     addRows,
	mnn.BinarySub:     rows(func(x, y float32) float32 { return x - y }),
	mnn.BinaryMul:     mulRows,
	mnn.BinaryRealDiv: rows(func(x, y float32) float32 { return x / y }),
	mnn.BinaryMaximum: rows(func(x, y float32) float32 { return max(x, y) }),
	mnn.BinaryMinimum: rows(func(x, y float32) float32 { return min(x, y) }),
}

func addRows(dst, x, y []float32, sx, sy int) {
	if sx == 1 && sy == 1 {
		x, y = x[:len(dst)], y[:len(dst)]
		for i := range dst {
			dst[i] = x[i] + y[i]
		}
		return
	}
	for i := range dst {
		dst[i] = x[i*sx] + y[i*sy]
	}
}

func mulRows(dst, x, y []float32, sx, sy int) {
	if sx == 1 && sy == 1 {
		x, y = x[:len(dst)], y[:len(dst)]
		for i := range dst {
			dst[i] = x[i] * y[i]
		}
		return
	}
	for i := range dst {
		dst[i] = x[i*sx] * y[i*sy]
	}
}

// Division and remainder truncate like C; the graph reader cannot know that a divisor is 0, so a quotient by
// 0 is 0 here.
var intOps = map[mnn.BinaryOp]func(dst, x, y []int32, sx, sy int){
	mnn.BinaryAdd:      rows(func(x, y int32) int32 { return x + y }),
	mnn.BinarySub:      rows(func(x, y int32) int32 { return x - y }),
	mnn.BinaryMul:      rows(func(x, y int32) int32 { return x * y }),
	mnn.BinaryRealDiv:  rows(quotient),
	mnn.BinaryDiv:      rows(quotient),
	mnn.BinaryMaximum:  rows(func(x, y int32) int32 { return max(x, y) }),
	mnn.BinaryMinimum:  rows(func(x, y int32) int32 { return min(x, y) }),
	mnn.BinaryMod:      rows(floorMod),
	mnn.BinaryFloorMod: rows(floorMod),

	mnn.BinaryGreater:      rows(greater[int32]),
	mnn.BinaryGreaterEqual: rows(greaterEqual[int32]),
	mnn.BinaryLess:         rows(less[int32]),
	mnn.BinaryLessEqual:    rows(lessEqual[int32]),
	mnn.BinaryEqual:        rows(equal[int32]),
	mnn.BinaryNotEqual:     rows(notEqual[int32]),
}

var comparisons = map[mnn.BinaryOp]func(dst []int32, x, y []float32, sx, sy int){
	mnn.BinaryGreater:      rows(greater[float32]),
	mnn.BinaryGreaterEqual: rows(greaterEqual[float32]),
	mnn.BinaryLess:         rows(less[float32]),
	mnn.BinaryLessEqual:    rows(lessEqual[float32]),
	mnn.BinaryEqual:        rows(equal[float32]),
	mnn.BinaryNotEqual:     rows(notEqual[float32]),
}

func greater[T int32 | float32](x, y T) int32      { return truth(x > y) }
func greaterEqual[T int32 | float32](x, y T) int32 { return truth(x >= y) }
func less[T int32 | float32](x, y T) int32         { return truth(x < y) }
func lessEqual[T int32 | float32](x, y T) int32    { return truth(x <= y) }
func equal[T int32 | float32](x, y T) int32        { return truth(x == y) }
func notEqual[T int32 | float32](x, y T) int32     { return truth(x != y) }

func truth(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

func quotient(x, y int32) int32 {
	if y == 0 || (x == math.MinInt32 && y == -1) {
		return 0
	}
	return x / y
}

func floorMod(x, y int32) int32 {
	if y == 0 || y == -1 {
		return 0
	}
	r := x % y
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r
}

// Binary runs a binary op.
func Binary(p *mnn.Binary, in []Tensor, threads int) (Tensor, error) {
	a, b, op := in[0], in[1], p.Op
	if op == mnn.BinaryMulSilu && b.Ints == nil {
		b, op = unaries[mnn.UnarySilu].run(b, threads), mnn.BinaryMul
	}
	if p.Activation != 0 {
		return Tensor{}, fmt.Errorf("%v with an activation: %w", op, tensor.ErrUnsupported)
	}
	if (a.Ints == nil) != (b.Ints == nil) {
		return Tensor{}, fmt.Errorf("%v of floats and integers: %w", op, tensor.ErrUnsupported)
	}
	if a.Ints != nil {
		e, err := IntElementwise(op, a.Shape, b.Shape)
		if err != nil {
			return Tensor{}, err
		}
		out := Tensor{Shape: e.Shape, Ints: make([]int32, Count(e.Shape))}
		e.Do(out.Ints, a.Ints, b.Ints)
		return out, nil
	}
	if e, err := FloatComparison(op, a.Shape, b.Shape); e != nil || err != nil {
		if err != nil {
			return Tensor{}, err
		}
		out := NewInts(make([]int32, Count(e.Shape)), e.Shape...)
		e.Do(out.Ints, a.Floats, b.Floats)
		return out, nil
	}
	e, err := FloatElementwise(op, a.Shape, b.Shape)
	if err != nil {
		return Tensor{}, err
	}
	out := NewFloats(e.Shape...)
	e.Do(out.Floats, a.Floats, b.Floats)
	return out, nil
}
