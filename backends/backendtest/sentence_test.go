package backendtest

import (
	"errors"
	"testing"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// testWholeTexts: attention without a cache gives what attention with an empty one gives, and refuses to go on; a graph may read
// the mask of a text without padding, and reshape by the number of its tokens.
func testWholeTexts(t *testing.T, be backend.Backend) {
	needs(t, be, mnn.OpAttention, mnn.OpShape, mnn.OpConcat, mnn.OpBinaryOp)
	h, x := heads{4, 2, 16}, random(7, 40*heads{4, 2, 16}.width())
	run := func(cached bool) (backend.Executable, backend.State, []float32) {
		b := &builder{}
		out := b.attention(b.input("input_ids"), h, false)
		b.Ops[len(b.Ops)-1].Param.(*mnn.Attention).KVCache = cached
		e, err := b.compile(be, out, backend.Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		s := e.NewState()
		return e, s, pieces(t, e, s, x, h.width(), []int{40})
	}
	_, _, want := run(true)
	e, s, got := run(false)
	same(t, got, want)
	call := backend.Call{Embeddings: x[:h.width()], Tokens: 1}
	if got, err := e.Run(t.Context(), []backend.State{s}, call); got != nil || !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("a second call: %v, %v", got, err)
	}
	s.Reset()
	same(t, pieces(t, e, s, x, h.width(), []int{40}), want)

	// The mask is added to the sums of every token: [1, tokens, 4] summed over what is left, with rows put in order by a shape.
	b := &builder{}
	mask := b.op(mnn.OpInput, &mnn.Input{Dims: []int32{-1, 1, 1, -1}, DType: mnn.DTFloat, Format: mnn.NCHW})
	b.Ops[len(b.Ops)-1].Name = "attention_mask"
	tokens := b.cut(b.op(mnn.OpShape, nil, b.input("position_ids")), 1, 2, 0)
	shape := b.op(mnn.OpConcat, &mnn.Axis{}, b.ints([]int32{-1}, 1), tokens, b.ints([]int32{4}, 1))
	rows := b.op(mnn.OpReshape, &mnn.Reshape{DimType: mnn.NCHW}, b.input("input_ids"), shape)
	column := b.reshape(mask, 1, -1, 1)
	sum := b.op(mnn.OpBinaryOp, &mnn.Binary{Op: mnn.BinaryAdd, T: mnn.DTFloat}, rows, column)
	values := random(8, 12)
	e, err := b.compile(be, sum, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{3, 2, 3} {
		got, err := e.Run(t.Context(), []backend.State{e.NewState()}, backend.Call{Embeddings: values[:4*n], Tokens: n, All: true})
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, values[:4*n])
	}
}
