// Package forward computes a decoder in float32, directly from its description and the tensors of its checkpoint. It is the only
// forward pass of the program: pipeline/reference scores texts with it; pipeline/calibrate observes activations, replaces
// weights and computes gradients with it.
//
// Call [New], then [Embedding.States] for the states of some windows, [Layer.Forward] of every [Model.Layer], and [Head.Logits]
// of [Model.Head]. These read weights when they need them. [Model.LoadLayer] and [Model.LoadHead] keep the weights in memory,
// where they can be read and replaced: [Layer.Read] returns the vector that a linear layer reads, [Linear.Set] replaces weights,
// and [Layer.Backward] turns the gradient of the output of a layer into that of its input. A [Cache] advances windows by one
// token at a time.
//
// A layer is a list of branches, a branch a block between norms. A block is one file: it checks its dimensions, reports how much
// memory it needs, runs, and has a backward pass. Attention takes
// rotation and mask as values, so that another order of tokens needs only other values.
//
// Products and states are float32; norms, functions and convolutions are computed in float64 and rounded once. All results have
// the same bits on every machine, for every number of threads, however much of the weights is kept in memory, and for a window
// regardless of the others that are computed with it. Sums over tokens, such as the gradients of weights, are taken in the order
// of the tokens.
//
// This package is one side of every verification; the other side is the packaged graph. So it must not share code with the
// packages that lower, plan, pack and execute graphs. The two sides share the description, which is checked against recorded
// logits of transformers for every family, and the functions of runtime/kernel that have tests of their own against plain loops
// and higher precision: products of matrices (MatMul, MatMulAdd for pieces of whole Segments, MatMulT, Packed; Offload gives them to a
// device), copies, sums, products and scales of vectors, Softmax and its parts (Exponents, ScaleExact), SiLU, SiLUSlopes and SiLUBack, RMSNorm and RMSNormBack,
// RotateHeads, TopK, Exp, ExpsInPlace, Log, Softplus, LogSumExp, KL and Sincos. A kernel.Chain with its steps and Pasts describes layers to a device,
// which Forget ends; the description is compared with what this package computes. Logits and Labels let a device use products without
// returning them. kernel.Routing is this package's choice of experts, which devices repeat; graphs have their own. The formats of stored
// numbers, the order of a layer, attention, routing and recurrences are implemented here a second time.
package forward

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync"
	"sync/atomic"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Model computes one decoder. It is safe for concurrent use.
type Model struct {
	decoder *arch.Decoder
	source  tensor.Source
	infos   map[string]tensor.Info
	threads int

	layers  [][]branch
	cost    cost    // the largest of any block
	fastest float64 // the largest rotary frequency, in radians per position
	ropes   map[*arch.Rope]*rotary

	matrices map[arch.Weight]*matrix
	weights  Weights

	room    *atomic.Int64 // bytes of matrices that may still be kept
	keeping bool          // of vectors
	lock    sync.Mutex    // of vectors, ropes and spare
	vectors map[string][]float32
	spare   []*Linear // of the layer that was released last: memory for weights

	buffers sync.Pool // of *buffer
	slabs   sync.Pool // of *kernel.Packed
	arenas  arenas
}

// New prepares d for computation from src, which has the tensors under the names of d, see [arch.Open], on up to threads
// goroutines; values below 1 mean GOMAXPROCS. It reads no weights, but compares every slot of d with the facts that src reports:
// a missing tensor or a wrong shape is tensor.ErrCorrupt, an element type that cannot be widened to float32 is
// tensor.ErrUnsupported. The description and the source must not change afterwards.
func New(d *arch.Decoder, src tensor.Source, threads int) (*Model, error) {
	m := unchecked(d, src, threads)
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// unchecked is New without checks.
func unchecked(d *arch.Decoder, src tensor.Source, threads int) *Model {
	if threads < 1 {
		threads = goruntime.GOMAXPROCS(0)
	}
	m := &Model{
		decoder: d, source: src, infos: make(map[string]tensor.Info), threads: threads,
		ropes: make(map[*arch.Rope]*rotary), matrices: make(map[arch.Weight]*matrix), vectors: make(map[string][]float32),
		room: new(atomic.Int64),
	}
	for _, info := range src.Tensors() {
		m.infos[info.Name] = info
	}
	m.makePools()
	return m
}

func (m *Model) makePools() {
	m.buffers.New = func() any { return new(buffer) }
	m.slabs.New = func() any { return new(kernel.Packed) }
	m.arenas.New = func() any { return new(arena) }
}

// Share returns a model that computes on up to threads goroutines and shares the matrices that are kept in memory with m, see [Model.Keep],
// which may not be called afterwards.
func (m *Model) Share(threads int) *Model {
	x := &Model{
		decoder: m.decoder, source: m.source, infos: m.infos, threads: threads,
		layers: m.layers, cost: m.cost, fastest: m.fastest, ropes: make(map[*arch.Rope]*rotary),
		matrices: m.matrices, weights: m.weights, room: m.room, keeping: m.keeping, vectors: make(map[string][]float32),
	}
	for of := range m.ropes {
		x.ropes[of] = new(rotary)
	}
	x.makePools()
	return x
}

// Decoder returns the description that the model computes.
func (m *Model) Decoder() *arch.Decoder { return m.decoder }

// Weights are sizes of weights, in float32 unless it is said otherwise, in bytes.
type Weights struct {
	// All is the size of every matrix and vector, Slab that of the largest piece of a matrix that is in memory at a time if
	// matrices are not kept.
	All, Slab int64
	// Stored is that of every matrix as a device keeps it: with the 16 bits of a checkpoint's BF16 and F16.
	Stored int64
	// read is the largest piece that a thread widens at a time.
	read int64
}

// Weights returns the sizes of the model's weights.
func (m *Model) Weights() Weights { return m.weights }

// Keep lets up to the given number of bytes of matrices, and all vectors, stay in memory once they have been read; every other
// matrix is read again for each product. Without Keep, nothing stays in memory.
func (m *Model) Keep(bytes int64) {
	m.room.Store(bytes)
	m.keeping = true
}

// TokenBytes is the memory for the activations of a token within a layer.
func (m *Model) TokenBytes() int64 { return 4 * int64(m.cost.token) }

// Overhead is the memory for the buffers of the threads and the rotary tables, with windows of up to longest tokens.
func (m *Model) Overhead(longest int) int64 {
	floats := int64(0)
	for r := range m.ropes {
		floats += 2 * int64(r.Dim)
		if r.Long != nil {
			floats += 2 * int64(r.Dim)
		}
	}
	// Rows of a matrix take up to 8 bytes per element as stored.
	thread := 3*m.weights.read + 4*int64(longest)*int64(m.cost.position) + 4*int64(m.cost.fixed)
	return int64(m.threads)*thread + 4*int64(longest)*floats
}

// LeastWeights is about how many bytes products need if no matrix is kept: a slab, and the read buffers of the threads.
func LeastWeights(threads int) int64 { return slabBytes + 3*readBytes*int64(threads) }

// each calls f for every unit below n, on all threads, until one fails or ctx ends. f may use the buffer until it
// returns.
func (m *Model) each(ctx context.Context, n int, f func(unit int, b *buffer) error) error {
	var failed atomic.Pointer[error]
	kernel.Parallel(m.threads, n, func(lo, hi int) {
		b := m.buffers.Get().(*buffer)
		defer m.buffers.Put(b)
		for ; lo < hi && failed.Load() == nil && ctx.Err() == nil; lo++ {
			if err := f(lo, b); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return context.Cause(ctx)
}

// rows returns the number of rows of width values in x; y must have the same number with its own width.
func rows(call string, x []float32, width int, y []float32, yWidth int) int {
	n := len(x) / width
	if len(x) != n*width || len(y) != n*yWidth {
		panic(fmt.Sprintf("internal error: forward.%s: %d and %d values for rows of %d and %d", call, len(x), len(y), width, yWidth))
	}
	return n
}
