// Package backend defines how a graph is run: a [Backend] compiles the graph of a package with its
// weights into an [Executable], which runs calls over a [State], the KV cache of one conversation.
//
// A backend interprets the graph op by op and knows nothing of model families, so that a wrong graph gives a
// wrong result. Ops it cannot run are refused at Compile with tensor.ErrUnsupported.
package backend

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// Mode is how linear layers compute.
type Mode int

const (
	// Float expands weights to float32: the engine's memory: high, precision: high.
	Float Mode = iota
	// Int8 quantizes activations to int8 as the engine does on x86 at memory: low.
	Int8
)

func (m Mode) String() string {
	if m == Int8 {
		return "int8"
	}
	return "float"
}

// Options of Compile.
type Options struct {
	Mode Mode
	// Half computes in half precision, as the engine does on arm64 at precision: low with one thread, slowly; in Int8 mode on CPUs with matrix
	// products of int8.
	Half bool
	// Arm, if not 0, computes what the engine does on such a CPU at `precision: normal`, in Int8 mode and slowly. Half is false then.
	Arm kernel.ArmCPU
	// DynamicOption is the engine's key of that name modulo 8, for Int8: 0 quantizes activations per token,
	// 2 per token and weight block.
	DynamicOption int
	// RepackLowBits makes Int8 run codes of fewer than 4 bits as 4-bit codes, and LinearAttention compute a single token
	// like several, as engines before 3.6.0 do.
	RepackLowBits bool
	// Window is sliding_window of a package whose attention_type is "mix": the input attention_mask is then
	// [2, 1, 1, tokens, keys], 0 where a query attends to a key and the lowest float elsewhere; part 0 is causal, part 1 limits a
	// query to the last Window positions. 0: the mask is a number without dimensions, causal.
	Window int
	// Threads that compute; results do not depend on it. At least 1.
	Threads int
	// CacheBytes is how much memory may be spent on weights kept in the form the kernels read; what does not fit
	// is decoded again in every call.
	CacheBytes int64
	// CodeBytes, if not 0, is how much memory the codes and scales of layers other than experts may take in Int8 mode, in addition to
	// those of the package; layers beyond are laid out again in every call, some rows at a time.
	CodeBytes int64
	// ExpertBytes, if not 0, is how much memory the codes and scales of experts may take in addition to those of the package; experts
	// beyond are opened again in every call. Without it all are kept. A backend that is not made for speed keeps all.
	ExpertBytes int64
	// Replace, if set, gives float weights [rows, cols] and the bias [rows] to use instead of the stored ones of a
	// Convolution, the factors and offsets of a LayerNorm, or the values of a Const in the weight file; nil keeps either.
	// It lets a graph run at the precision of the source. Calls may overlap. Weights of layers that CacheBytes has no room for
	// are read again in every call, some rows at a time.
	Replace func(op *mnn.Op) (weights *Replacement, bias []float32, err error)
}

// Capabilities lists the ops and modes that a backend runs.
type Capabilities struct {
	Ops   []mnn.OpType
	Modes []Mode
}

// Backend is something that runs graphs.
type Backend interface {
	Name() string
	Capabilities() Capabilities
	Compile(g *mnn.Graph, w mnn.Weights, o Options) (Executable, error)
}

// Call is one forward pass over new tokens.
type Call struct {
	// Embeddings [states, Tokens, hidden] of the new tokens; for the graph of a tower the pixels of a picture,
	// which counts as a token, or the features of a clip [features, frames], whose frames count as tokens.
	Embeddings []float32
	// Tokens of each state.
	Tokens int
	// Positions, if set, are the positions [axes, Tokens] of the tokens of the only state, for graphs whose positions have several axes. Without
	// them all axes count tokens. A tower of views, which count as tokens, takes those of the patches of each view, and then the height and width
	// of each.
	Positions []int32
	// Deep, if set, are values [slices, Tokens, hidden] that the graph adds after its first layers; without them they are 0.
	Deep []float32
	// Offset is added to the positions of the tokens; whether the cache holds the positions before is not checked.
	Offset int
	// All requests the logits of every position instead of the last.
	All bool
	// Defer returns no logits: Executable.Logits computes those of every position later, some rows at a time. A
	// window of 512 over a vocabulary of 151,936 would be 311 MB at once.
	Defer bool
	// Observe, if set, is called with every float output except deferred logits: the op, the output's place among op.Outputs, the
	// logical shape, and the values, which are only valid during the call. Several states may come together or one
	// after another. Ops of an expert come before the MoE that calls it, with the rows that chose the expert.
	Observe func(op *mnn.Op, output int, shape []int, values []float32)
	// Peaks, if set, is called with the largest magnitude in the outputs of ops that compute, once for each state or all of them;
	// a NaN if there is one; of ops of experts, once for each call of the expert. Ops that were fused with the next one, and deferred logits, are left out.
	Peaks func(op *mnn.Op, peak float32)
}

// Place writes the positions of the tokens of one of several states, of which before are cached, to ids, [axes, states, Tokens].
func (c *Call) Place(ids []int32, state, states, before int) error {
	if c.Positions != nil {
		if len(c.Positions) != len(ids) {
			return fmt.Errorf("internal error: %d positions, the graph wants %d", len(c.Positions), len(ids))
		}
		copy(ids, c.Positions)
		return nil
	}
	axes := len(ids) / (states * c.Tokens)
	for axis := range axes {
		for t := range c.Tokens {
			ids[(axis*states+state)*c.Tokens+t] = int32(c.Offset + before + t)
		}
	}
	return nil
}

// State is the memory of one conversation: the KV cache, and the states of recurrent layers. It belongs to the Executable that
// made it and to one goroutine.
type State interface {
	// Len is the number of cached positions.
	Len() int
	// Reset forgets them.
	Reset()
	// Keep forgets all positions but the first n, at most Len, and reports whether it could: a recurrent layer keeps all or
	// nothing. If not, nothing changes.
	Keep(n int) bool
	// Bytes is the memory of keys and values, for whole blocks of kernel.CacheBlock positions, and of recurrent states, which do
	// not grow.
	Bytes() (cached, fixed int64)
}

// Executable is a compiled graph, safe for concurrent use with different states.
type Executable interface {
	NewState() State
	// Run appends the call's tokens to each state, with the results of one call for each. A tower's further rows, [mnn.DeepRows], follow
	// its rows. Embeddings and logits hold
	// one state after another; a state's logits are [1 or Tokens, vocabulary] and valid until the next call with the
	// first of the states. States are different ones.
	Run(ctx context.Context, states []State, c Call) (logits []float32, err error)
	// Logits returns rows from to to-1 of the logits that the last call with these states deferred, counted over all states. They are
	// valid until the next use of the states.
	Logits(ctx context.Context, states []State, from, to int) ([]float32, error)
	// TokenBytes is about how much memory a call takes for each of its tokens, deferred logits left out.
	TokenBytes() int64
}

// OneByOne runs a call of several states as one call for each.
func OneByOne(ctx context.Context, e Executable, states []State, c Call) (logits []float32, err error) {
	all, width := c.Embeddings, len(c.Embeddings)/len(states)
	for i := range states {
		c.Embeddings = all[i*width : (i+1)*width]
		l, err := e.Run(ctx, states[i:i+1], c)
		if err != nil {
			return nil, err
		}
		logits = append(logits, l...)
	}
	return logits, nil
}
