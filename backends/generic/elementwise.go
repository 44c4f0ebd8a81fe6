package generic

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
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
	return shape, sa, sb, limited(shape)
}

// apply computes out[i] = f(a, b) over the broadcast shape; the last dimension is the inner loop.
func apply[T any](out, a, b []T, shape, sa, sb []int, f func(dst, x, y []T, sx, sy int)) {
	if len(out) == 0 {
		return
	}
	if len(shape) == 0 {
		f(out, a, b, 0, 0)
		return
	}
	last := len(shape) - 1
	inner := shape[last]
	idx := make([]int, last)
	oa, ob := 0, 0
	for at := 0; at < len(out); at += inner {
		f(out[at:at+inner], a[oa:], b[ob:], sa[last], sb[last])
		for k := last - 1; k >= 0; k-- {
			idx[k]++
			oa, ob = oa+sa[k], ob+sb[k]
			if idx[k] < shape[k] {
				break
			}
			oa, ob = oa-sa[k]*shape[k], ob-sb[k]*shape[k]
			idx[k] = 0
		}
	}
}

// rows applies a scalar function along an inner loop.
func rows[T any](f func(x, y T) T) func(dst, x, y []T, sx, sy int) {
	return func(dst, x, y []T, sx, sy int) {
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

func runBinary(p *mnn.Binary, in []value, m *arithmetic, threads int) (value, error) {
	a, b, op := in[0], in[1], p.Op
	if op == mnn.BinaryMulSilu && b.i == nil {
		b, op = runSilu(b, m, threads), mnn.BinaryMul
	}
	shape, sa, sb, err := broadcast(a.shape, b.shape)
	if err != nil {
		return value{}, err
	}
	if (a.i == nil) != (b.i == nil) {
		return value{}, fmt.Errorf("%v of floats and integers: %w", op, tensor.ErrUnsupported)
	}
	if a.i != nil {
		f := intOps[op]
		if f == nil {
			return value{}, fmt.Errorf("%v of integers: %w", op, tensor.ErrUnsupported)
		}
		out := value{shape: shape, i: make([]int32, count(shape))}
		apply(out.i, a.i, b.i, shape, sa, sb, f)
		return out, nil
	}
	f := floatOps[op]
	if f == nil {
		return value{}, fmt.Errorf("%v of floats: %w", op, tensor.ErrUnsupported)
	}
	out := floats(shape...)
	apply(out.f, a.f, b.f, shape, sa, sb, f)
	return out, nil
}

func runUnary(p *mnn.Unary, in []value, m *arithmetic, threads int) (value, error) {
	x := in[0]
	if x.i != nil {
		return value{}, fmt.Errorf("%v of integers: %w", p.Op, tensor.ErrUnsupported)
	}
	switch p.Op {
	case mnn.UnaryNeg:
		out := floats(x.shape...)
		for i, v := range x.f {
			out.f[i] = -v
		}
		return out, nil
	case mnn.UnarySilu:
		return runSilu(x, m, threads), nil
	}
	return value{}, fmt.Errorf("%v: %w", p.Op, tensor.ErrUnsupported)
}

func runSilu(x value, m *arithmetic, threads int) value {
	const chunk = 1 << 12 // a multiple of the engine's groups of eight
	out := floats(x.shape...)
	kernel.Parallel(threads, (len(x.f)+chunk-1)/chunk, func(lo, hi int) {
		hi = min(hi*chunk, len(x.f))
		m.silu(out.f[lo*chunk:hi], x.f[lo*chunk:hi])
	})
	return out
}
