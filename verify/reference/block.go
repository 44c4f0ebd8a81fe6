package reference

import (
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// block computes what a branch adds to the residual stream.
type block interface {
	// check demands consistent dimensions, and that the source has every weight that run reads.
	check(m *Model) error
	// cost is what run needs beside its input, its output and the weights.
	cost() cost
	// run writes to out [tokens, Hidden] what the block makes of x [tokens, Hidden], which stays as it is.
	run(ctx context.Context, m *Model, out, x []float32, s *space) error
}

// newBlock wraps a block of a description.
func newBlock(b arch.Block) (block, error) {
	switch b := b.(type) {
	case *arch.Attention:
		return attention{b}, nil
	case *arch.LatentAttention:
		return latent{b}, nil
	case *arch.MLP:
		return mlp{b}, nil
	case *arch.Experts:
		return experts{b}, nil
	case *arch.Sum:
		return &sum{Sum: b}, nil
	case *arch.ShortConv:
		return shortConv{b}, nil
	case *arch.DeltaNet:
		return delta{b}, nil
	case *arch.Mamba2:
		return mamba{b}, nil
	}
	return nil, fmt.Errorf("blocks of type %T are not computed: %w", b, tensor.ErrUnsupported)
}

// cost is memory, in float32 values.
type cost struct {
	// token is what the space holds for every token of a group.
	token int
	// position is what a thread holds for every token of a window, fixed what it holds besides.
	position, fixed int
}

func (c cost) max(d cost) cost {
	return cost{max(c.token, d.token), max(c.position, d.position), max(c.fixed, d.fixed)}
}

// space is what the blocks of one pass over a group work with.
type space struct {
	group
	rotaries map[*arch.Rope]*rotary
	free     []float32 // cost.token values for every token
}

// tokens is how many the group has.
func (s *space) tokens() int { return len(s.positions) }

// take is [tokens, width] of arbitrary content, for as long as the block runs.
func (s *space) take(width int) []float32 {
	n := s.tokens() * width
	x := s.free[:n:n]
	s.free = s.free[n:]
	return x
}

// maxWidth bounds a row of activations: offsets within a row fit an int anywhere, and a sum of a few rows too.
const maxWidth = math.MaxInt32 / 8

// width is the product of dimensions that are at least 1 and make no row wider than maxWidth.
func width(what string, dims ...int) (int, error) {
	n := int64(1)
	for _, d := range dims {
		if d < 1 || int64(d) > maxWidth/n {
			return 0, fmt.Errorf("%s of %v elements: %w", what, dims, tensor.ErrCorrupt)
		}
		n *= int64(d)
	}
	return int(n), nil
}

// finite reports that x is a number not below least.
func finite(x, least float64) bool { return x >= least && !math.IsInf(x, 0) }
