package backendtest

import (
	"fmt"
	"testing"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// builder appends ops to a graph and bytes to its weight file. Values are indices of tensors.
type builder struct {
	mnn.Graph
	file file
}

// file is a weight file in memory.
type file []byte

func (f file) Size() int64 { return int64(len(f)) }

func (f file) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > f.Size() || n > f.Size()-off {
		return nil, fmt.Errorf("bytes %d+%d of %d: %w", off, n, len(f), tensor.ErrCorrupt)
	}
	return f[off : off+n : off+n], nil
}

// op appends an op; its outputs are the returned index and the ones after it.
func (b *builder) op(t mnn.OpType, p mnn.Param, in ...int32) int32 { return b.ops(1, t, p, in...) }

func (b *builder) ops(outputs int, t mnn.OpType, p mnn.Param, in ...int32) int32 {
	first := int32(len(b.Tensors))
	op := mnn.Op{Name: fmt.Sprintf("%v/%d", t, len(b.Ops)), Type: t, Inputs: in, Param: p}
	for k := range outputs {
		op.Outputs = append(op.Outputs, first+int32(k))
		b.Tensors = append(b.Tensors, fmt.Sprintf("%s/%d", op.Name, k))
	}
	b.Ops = append(b.Ops, op)
	return first
}

// input is one of the inputs that the engine feeds.
func (b *builder) input(name string) int32 {
	dt := mnn.DTFloat
	if name == "position_ids" || name == "logits_index" {
		dt = mnn.DTInt32
	}
	t := b.op(mnn.OpInput, &mnn.Input{DType: dt, Format: mnn.NCHW})
	b.Ops[len(b.Ops)-1].Name = name
	return t
}

// floats and ints are constants; no dims make a scalar of one value, a list of many.
func (b *builder) floats(v []float32, dims ...int32) int32 {
	return b.op(mnn.OpConst, &mnn.Blob{Dims: dims, DType: mnn.DTFloat, Format: mnn.NCHW, Float32s: v})
}

func (b *builder) ints(v []int32, dims ...int32) int32 {
	return b.op(mnn.OpConst, &mnn.Blob{Dims: dims, DType: mnn.DTInt32, Format: mnn.NCHW, Int32s: v})
}

func (b *builder) list(v ...int32) int32 { return b.ints(v, int32(len(v))) }

func (b *builder) scalar(v int32) int32 { return b.ints([]int32{v}) }

func (b *builder) reshape(x int32, dims ...int32) int32 {
	return b.op(mnn.OpReshape, &mnn.Reshape{Dims: dims, DimType: mnn.NCHW}, x)
}

func (b *builder) binary(op mnn.BinaryOp, x, y int32) int32 {
	return b.op(mnn.OpBinaryOp, &mnn.Binary{Op: op, T: mnn.DTFloat}, x, y)
}

func (b *builder) concat(axis int32, xs ...int32) int32 {
	return b.op(mnn.OpConcat, &mnn.Axis{Axis: axis}, xs...)
}

func (b *builder) gather(table, index, axis int32) int32 {
	return b.op(mnn.OpGatherV2, &mnn.GatherV2{}, table, index, b.scalar(axis))
}

// cut is the slice from lo to hi along an axis.
func (b *builder) cut(x, lo, hi, axis int32) int32 {
	return b.op(mnn.OpStridedSlice, &mnn.StridedSlice{FromType: 1}, x, b.list(lo), b.list(hi), b.list(axis), b.list(1))
}

// asFloats turns integers from -100 to 100 into floats of the same value, so that they can be seen.
func (b *builder) asFloats(x int32) int32 {
	table := make([]float32, 201)
	for i := range table {
		table[i] = float32(i - 100)
	}
	return b.gather(b.floats(table, 201), b.binary(mnn.BinaryAdd, x, b.scalar(100)), 0)
}

// compile makes result the graph's output. What the backend refuses here is an error that a graph deserves.
func (b *builder) compile(be backend.Backend, result int32, o backend.Options) (backend.Executable, error) {
	b.Tensors[result] = "logits"
	b.Outputs = []string{"logits"}
	return be.Compile(&b.Graph, b.file, o)
}

// run compiles and runs one call, and returns the shape and values of the result.
func (b *builder) run(t *testing.T, be backend.Backend, result int32, c backend.Call, threads int) (shape []int, values []float32) {
	t.Helper()
	e, err := b.compile(be, result, backend.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	c.Observe = func(op *mnn.Op, k int, s []int, _ []float32) {
		if op.Outputs[k] == result {
			shape = append([]int{}, s...)
		}
	}
	if values, err = e.Run(t.Context(), []backend.State{e.NewState()}, c); err != nil {
		t.Fatal(err)
	}
	return shape, values
}
