// Package generic is the reference backend: it interprets a graph op by op in portable Go, over the portable
// forms of runtime/kernel. It is the definition that faster backends are measured against.
package generic

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/backends/internal/ops"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Backend implements backend.Backend.
type Backend struct{}

// Name implements backend.Backend.
func (Backend) Name() string { return "generic" }

// Capabilities implements backend.Backend.
func (Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Ops: []mnn.OpType{
			mnn.OpBatchMatMul, mnn.OpGatherElements, mnn.OpLinearAttention, mnn.OpMoE, mnn.OpPermute, mnn.OpReduction, mnn.OpTopKV2,
			mnn.OpAttention, mnn.OpBinaryOp, mnn.OpConcat, mnn.OpConst, mnn.OpConvertTensor, mnn.OpConvolution, mnn.OpDepthwise, mnn.OpGatherV2,
			mnn.OpInput, mnn.OpLayerNorm, mnn.OpRank, mnn.OpReshape, mnn.OpRoPE, mnn.OpShape, mnn.OpSqueeze,
			mnn.OpStridedSlice, mnn.OpUnaryOp, mnn.OpUnsqueeze,
			mnn.OpCast, mnn.OpRange, mnn.OpReLU, mnn.OpSoftmax,
		},
		Modes: []backend.Mode{backend.Float, backend.Int8},
	}
}

// executable is a graph with its weights opened.
type executable struct {
	g       *mnn.Graph
	options backend.Options
	logits  int32
	deep    int32 // a second output, or -1
	// One entry per op; nil where the op has no weights.
	linears []*linear
	norms   []*ops.Norm
	consts  []ops.Tensor
	experts map[int][]*executable // of a MoE, by op
	// expert is set if the graph is an expert of another.
	expert bool
	// live ops are those that an output depends on; stock graphs hold others, some of which read nothing.
	live []bool
	// last is the op after which a tensor is not read any longer; 0 keeps it.
	last []int
}

// Compile implements backend.Backend.
func (Backend) Compile(g *mnn.Graph, w mnn.Weights, o backend.Options) (backend.Executable, error) {
	o.Threads = max(o.Threads, 1)
	logits, err := ops.Logits(g)
	if err != nil {
		return nil, err
	}
	e := newExecutable(g, g.Live(), logits, o)
	cache := o.CacheBytes
	if err := e.open(w, &cache); err != nil {
		return nil, err
	}
	// The layers of every token come first.
	e.experts, err = ops.CompileExperts(g, e.live, func(s *mnn.Subgraph) (*executable, error) {
		x := newExecutable(&mnn.Graph{Ops: s.Ops, Tensors: s.Tensors}, s.Live(), s.Outputs[0], o)
		x.expert = true
		return x, x.open(w, &cache)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func newExecutable(g *mnn.Graph, live []bool, output int32, o backend.Options) *executable {
	return &executable{
		g: g, options: o, logits: output, deep: ops.DeepRows(g), live: live,
		linears: make([]*linear, len(g.Ops)), norms: make([]*ops.Norm, len(g.Ops)), consts: make([]ops.Tensor, len(g.Ops)),
		last: make([]int, len(g.Tensors)),
	}
}

// open compiles the live ops.
func (e *executable) open(w mnn.Weights, cache *int64) error {
	for i := range e.g.Ops {
		op := &e.g.Ops[i]
		if !e.live[i] {
			continue
		}
		if err := e.compile(i, op, w, cache); err != nil {
			return fmt.Errorf("op %s (%v): %w", op.Name, op.Type, err)
		}
		for _, t := range op.Inputs {
			e.last[t] = i
		}
	}
	return nil
}

func (e *executable) compile(i int, op *mnn.Op, w mnn.Weights, cache *int64) (err error) {
	switch p := op.Param.(type) {
	case *mnn.Convolution:
		e.linears[i], err = compileLinear(op, p, w, &e.options, cache)
	case *mnn.LayerNorm:
		e.norms[i], err = ops.OpenNorm(op, p, w, &e.options)
	case *mnn.Blob:
		var c mnn.Constant
		c, err = ops.OpenConst(op, p, w, &e.options)
		e.consts[i] = ops.Tensor{Shape: c.Shape, Floats: c.Floats, Ints: c.Ints}
	case *mnn.Input:
		if !e.expert {
			err = ops.CheckInput(e.g, op)
		}
	}
	return err
}

// state implements backend.State; there is a cache and a linear state for each op, most of which stay nil.
type state struct {
	ops.Memory
	// logits [tokens, vocabulary] of the last call, if it deferred them.
	logits []float32
	tokens int
}

// NewState implements backend.Executable.
func (e *executable) NewState() backend.State {
	return &state{Memory: ops.Memory{Caches: make([]*kernel.KVCache, len(e.g.Ops)), Linear: make([]*kernel.LinearState, len(e.g.Ops))}}
}

// run is one call.
type run struct {
	exe   *executable
	state *state
	call  *backend.Call
	vals  []ops.Tensor
	// input0 is the input of an expert.
	input0 ops.Tensor
	// halves are tensors whose values are halves already, if the options ask for such.
	halves []bool
}

// Run implements backend.Executable.
func (e *executable) Run(ctx context.Context, states []backend.State, c backend.Call) ([]float32, error) {
	if c.Tokens <= 0 || len(states) == 0 || len(c.Embeddings)%(c.Tokens*len(states)) != 0 {
		return nil, fmt.Errorf("internal error: %d embeddings for %d tokens of %d states", len(c.Embeddings), c.Tokens, len(states))
	}
	if len(states) > 1 {
		return backend.OneByOne(ctx, e, states, c)
	}
	c.All = c.All || c.Defer
	r := &run{exe: e, state: states[0].(*state), call: &c, vals: make([]ops.Tensor, len(e.g.Tensors)), halves: make([]bool, len(e.g.Tensors))}
	if err := r.ops(ctx); err != nil {
		r.state.Truncate() // a call that failed half way leaves no trace
		return nil, err
	}
	r.state.Commit(c.Tokens)
	logits := r.vals[e.logits].Floats
	if c.Defer {
		r.state.logits, r.state.tokens = logits, c.Tokens
		return nil, nil
	}
	r.state.logits = nil
	if e.deep >= 0 {
		return slices.Concat(logits, r.vals[e.deep].Floats), nil
	}
	return logits, nil
}

// Logits implements backend.Executable. The interpreter has them all already.
func (e *executable) Logits(_ context.Context, states []backend.State, from, to int) ([]float32, error) {
	var out []float32
	at := 0
	for _, s := range states {
		s := s.(*state)
		if s.logits == nil {
			return nil, fmt.Errorf("internal error: no deferred logits")
		}
		lo, hi, vocab := max(from-at, 0), min(to-at, s.tokens), len(s.logits)/s.tokens
		if lo < hi {
			out = append(out, s.logits[lo*vocab:hi*vocab]...)
		}
		at += s.tokens
	}
	return out, nil
}

// TokenBytes implements backend.Executable: the largest tensors of a token a few times, for values live until their last
// reader is through.
func (e *executable) TokenBytes() int64 {
	largest := 0
	for i, l := range e.linears {
		if l != nil && e.g.Ops[i].Outputs[0] != e.logits {
			largest = max(largest, l.m.Rows, l.m.Cols)
		}
	}
	return 8 * 4 * int64(largest)
}

func (r *run) ops(ctx context.Context) error {
	g := r.exe.g
	for i := range g.Ops {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		op := &g.Ops[i]
		if !r.exe.live[i] {
			continue
		}
		in := make([]ops.Tensor, len(op.Inputs))
		half := r.exe.options.Half && storesHalf(op)
		for k, t := range op.Inputs {
			in[k] = r.vals[t]
			if half {
				in[k] = r.rounded(t)
			}
		}
		out, err := r.op(ctx, i, op, in)
		if err != nil {
			return fmt.Errorf("op %s (%v): %w", op.Name, op.Type, err)
		}
		if len(out) != len(op.Outputs) {
			return fmt.Errorf("op %s (%v): %d outputs, the graph wants %d: %w", op.Name, op.Type, len(out), len(op.Outputs), tensor.ErrCorrupt)
		}
		if half {
			store(op, out)
		}
		for k, t := range op.Outputs {
			r.vals[t], r.halves[t] = out[k], half
			if r.call.Observe != nil && out[k].Ints == nil {
				r.call.Observe(op, k, out[k].Shape, out[k].Floats)
			}
			if r.call.Peaks != nil && out[k].Ints == nil && computes[op.Type] {
				r.call.Peaks(op, kernel.AbsMax(out[k].Floats))
			}
		}
		for _, t := range op.Inputs {
			if r.exe.last[t] == i && t != r.exe.logits && t != r.exe.deep {
				r.vals[t] = ops.Tensor{}
			}
		}
	}
	return nil
}

// computes lists the ops that make new numbers.
var computes = map[mnn.OpType]bool{
	mnn.OpReLU: true, mnn.OpSoftmax: true,
	mnn.OpBatchMatMul: true, mnn.OpLinearAttention: true, mnn.OpMoE: true, mnn.OpReduction: true,
	mnn.OpAttention: true, mnn.OpBinaryOp: true, mnn.OpConvolution: true, mnn.OpDepthwise: true, mnn.OpLayerNorm: true, mnn.OpRoPE: true, mnn.OpUnaryOp: true,
}

func (r *run) op(ctx context.Context, i int, op *mnn.Op, in []ops.Tensor) ([]ops.Tensor, error) {
	if err := ops.CheckArity(op, in); err != nil {
		return nil, err
	}
	one := func(v ops.Tensor, err error) ([]ops.Tensor, error) { return []ops.Tensor{v}, err }
	threads := r.exe.options.Threads
	if r.exe.options.Half {
		if out, err := evaluateHalf(op, in, threads); out != nil || err != nil {
			return out, err
		}
	}
	if r.exe.options.Arm != 0 {
		if out := evaluateArm(op, in, threads); out != nil {
			return out, nil
		}
	}
	switch p := op.Param.(type) {
	case *mnn.Input:
		if r.exe.expert {
			return one(r.input0, nil)
		}
		return one(r.input(op.Name, p))
	case *mnn.Blob:
		return one(r.exe.consts[i], nil)
	case *mnn.Convolution:
		return one(r.exe.linears[i].run(in[0]))
	case *mnn.LayerNorm:
		return r.norm(i, op, in)
	case *mnn.Attention:
		return one(r.attention(i, p, in))
	case *mnn.RoPE:
		q, k, err := r.rope(p, in)
		return []ops.Tensor{q, k}, err
	case *mnn.LinearAttention:
		return one(r.recurrence(i, p, in))
	case *mnn.MoE:
		return one(r.experts(ctx, i, p, in))
	}
	return ops.Evaluate(op, in, threads)
}

// norm is RMSNorm; with two inputs their sum is normalised and is the first output.
func (r *run) norm(i int, op *mnn.Op, in []ops.Tensor) ([]ops.Tensor, error) {
	n, threads := r.exe.norms[i], r.exe.options.Threads
	if len(in) == 1 {
		y, err := n.Run(in[0], threads)
		return []ops.Tensor{y}, err
	}
	sum, err := ops.Binary(&mnn.Binary{Op: mnn.BinaryAdd}, in, threads)
	if err != nil {
		return nil, err
	}
	y, err := n.Run(sum, threads)
	if len(op.Outputs) == 1 {
		return []ops.Tensor{y}, err
	}
	return []ops.Tensor{sum, y}, err
}

// input returns an input as the engine feeds it: pictures, features of sound (see [ops.Features]), embeddings [tokens, 1, hidden], a mask
// of rank 0 that means causal or those of [WindowMask] or of a text without padding, positions [1, tokens], and the index of the first
// position whose logits are wanted.
func (r *run) input(name string, p *mnn.Input) (ops.Tensor, error) {
	c := r.call
	switch name {
	case mnn.FeaturesInput:
		return ops.Tensor{Shape: ops.Features(p, c.Tokens, len(c.Embeddings)/c.Tokens), Floats: c.Embeddings}, nil
	case mnn.PatchesInput:
		return ops.Tensor{Shape: []int{c.Tokens, len(c.Embeddings) / c.Tokens}, Floats: c.Embeddings}, nil
	case mnn.PaddedInput:
		return ops.Tensor{Shape: []int{1, c.Tokens, len(c.Embeddings) / c.Tokens}, Floats: c.Embeddings}, nil
	case mnn.PicturesInput, mnn.TilesInput:
		shape, err := ops.Pictures(p, c.Tokens, len(c.Embeddings))
		return ops.Tensor{Shape: shape, Floats: c.Embeddings}, err
	case "input_ids":
		return ops.Tensor{Shape: []int{c.Tokens, 1, len(c.Embeddings) / c.Tokens}, Floats: c.Embeddings}, nil
	case mnn.DeepInput:
		y := ops.NewFloats(int(p.Dims[0]), c.Tokens, int(p.Dims[2]))
		if c.Deep != nil && copy(y.Floats, c.Deep) != len(c.Deep) {
			return ops.Tensor{}, fmt.Errorf("internal error: %d values to add after layers, the graph wants %d", len(c.Deep), len(y.Floats))
		}
		return y, nil
	case "attention_mask":
		if ops.EveryPair(p) {
			return ops.NewFloats(1, c.Tokens, c.Tokens), nil
		}
		if w := r.exe.options.Window; w > 0 {
			return ops.Tensor{Shape: []int{2, 1, 1, c.Tokens, r.state.Positions + c.Tokens}, Floats: ops.WindowMask(c.Tokens, r.state.Positions, w)}, nil
		}
		if p.OfTexts() {
			return ops.NewFloats(1, 1, 1, c.Tokens), nil
		}
		return ops.Tensor{Shape: []int{}, Floats: []float32{0}}, nil
	case mnn.SizesInput:
		_, sizes, err := ops.Views(c)
		return ops.NewInts(sizes, c.Tokens, 2), err
	case "position_ids", mnn.PlacesInput:
		if ops.Each(p) {
			at, _, err := ops.Views(c)
			return ops.NewInts(at, c.Tokens, len(at)/c.Tokens), err
		}
		ids := make([]int32, ops.Axes(p)*c.Tokens)
		if err := c.Place(ids, 0, 1, r.state.Positions); err != nil {
			return ops.Tensor{}, err
		}
		if name == mnn.PlacesInput {
			return ops.NewInts(ids, 1, c.Tokens, ops.Axes(p)), nil
		}
		return ops.NewInts(ids, ops.Axes(p), c.Tokens), nil
	default:
		if c.All {
			return ops.NewInts([]int32{0}, 1), nil
		}
		return ops.NewInts([]int32{-1}, 1), nil
	}
}
