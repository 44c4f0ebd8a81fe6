package forward

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// block computes the output of a branch, which is added to the residual stream, and its gradients.
type block interface {
	// check requires consistent dimensions, and that the source has every weight that run reads.
	check(m *Model) error
	// cost is the memory of run in addition to its input and the weights.
	cost() cost
	// run computes the block for x [tokens, Hidden], which it does not change: the result is the input of last [tokens, Cols], or
	// without last the output [tokens, Hidden]. The result belongs to the space.
	run(ctx context.Context, s *space, x []float32) ([]float32, error)
	// record returns the input of last as run computes it, nil for a block without last, and the backward pass. All weights but
	// those of experts are in memory.
	record(ctx context.Context, s *space, x []float32) ([]float32, gradient, error)
	// last is the linear layer that computes the output, or nil if none alone does.
	last() *arch.Linear
	// inputs groups the linear layers by the vectors that they read, in the order of the computation; last is alone in its group.
	inputs() [][]*arch.Linear
	// norms lists the norms that the block may have; missing ones are nil.
	norms() []*arch.Norm
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
	case *arch.Injection:
		return injection{b}, nil
	case *arch.ShortConv:
		return shortConv{b}, nil
	case *arch.GatedConv:
		return gatedConv{b}, nil
	case *arch.NearAttention:
		return nearAttention{b}, nil
	case *arch.DeltaNet:
		return delta{b}, nil
	case *arch.Mamba2:
		return mamba{b}, nil
	}
	return nil, fmt.Errorf("blocks of type %T are not computed: %w", b, tensor.ErrUnsupported)
}

// cost is memory, in float32 values.
type cost struct {
	// token is the memory of the space for every token of a group.
	token int
	// position is the memory of a thread for every token of a window, fixed its memory in addition.
	position, fixed int
}

func (c cost) max(d cost) cost {
	return cost{max(c.token, d.token), max(c.position, d.position), max(c.fixed, d.fixed)}
}

// space is the working memory of the blocks of a layer for a group of tokens.
type space struct {
	*Model
	group
	held  *held  // weights that replace the model's, or nil
	cache *Cache // of earlier tokens, or nil
	// window is the index in the cache of the group's first window.
	window int
	free   []float32
	// side and dSide [tokens, Side] are what is next to the stream, and the gradients of that.
	side, dSide []float32
	kept        *arena        // of a pass that keeps values for gradients, or nil
	tally       *effort.Tally // of work that is done, or nil
	givesWay    bool          // see [GiveWay]
	// observe, if not nil, receives the input of every linear layer before it runs; an error ends the pass.
	observe func(l *arch.Linear, x []float32) error
}

// tokens is the number of tokens in the group.
func (s *space) tokens() int { return len(s.positions) }

// take returns [tokens, width] of arbitrary content, valid while the layer runs. A pass that keeps values for gradients needs an
// unbounded amount of memory.
func (s *space) take(width int) []float32 { return s.floats(s.tokens() * width) }

// floats is take for n values.
func (s *space) floats(n int) []float32 {
	if s.kept != nil {
		return s.kept.take(n)
	}
	x := s.free[:n:n]
	s.free = s.free[n:]
	return x
}

// clone returns a copy of x.
func (s *space) clone(x []float32) []float32 {
	y := s.floats(len(x))
	kernel.Copy(s.threads, y, x)
	return y
}

// linear computes linear layers that read the same n rows of x. Those whose weights are in memory are computed together.
func (s *space) linear(ctx context.Context, x []float32, n int, to ...output) error {
	list := make([]factor, 0, len(to))
	for _, o := range to {
		if o.of.Clip != nil {
			if err := s.clipped(ctx, x, n, o); err != nil {
				return err
			}
			continue
		}
		if s.observe != nil {
			if err := s.observe(o.of, x); err != nil {
				return err
			}
		}
		s.tally.Linear(n, o.of.Weight.Rows, o.of.Weight.Cols)
		if h := s.held.linear(o.of); h != nil && h.InMemory() {
			list = append(list, h.factor(o.dst))
			continue
		}
		f, err := s.factor(ctx, o)
		if err == nil && f.packed == nil {
			err = s.stream(ctx, x, n, o.of, f)
		} else {
			list = append(list, f)
		}
		if err != nil {
			return err
		}
	}
	for i := range list {
		list[i].givesWay = s.givesWay
	}
	multiply(s.threads, x, n, list...)
	return context.Cause(ctx)
}

// clipped is linear for a layer with bounds.
func (s *space) clipped(ctx context.Context, x []float32, n int, o output) error {
	in, err := s.bounded(o.of, slices.Clone(x))
	if err != nil {
		return err
	}
	if s.observe != nil {
		if err := s.observe(o.of, in); err != nil {
			return err
		}
	}
	s.tally.Linear(n, o.of.Weight.Rows, o.of.Weight.Cols)
	if h := s.held.linear(o.of); h != nil && h.InMemory() {
		multiply(s.threads, in, n, h.factor(o.dst))
	} else if err := s.Model.linear(ctx, in, n, o); err != nil {
		return err
	}
	bounds, err := s.vectors(o.of.Clip.OutLow, o.of.Clip.OutHigh)
	if err == nil {
		s.bound(o.dst, bounds)
	}
	return err
}

// bounded bounds what a linear layer reads, in place, if the layer has bounds.
func (s *space) bounded(l *arch.Linear, x []float32) ([]float32, error) {
	if l.Clip == nil {
		return x, nil
	}
	bounds, err := s.vectors(l.Clip.InLow, l.Clip.InHigh)
	if err == nil {
		s.bound(x, bounds)
	}
	return x, err
}

// bound bounds x by two vectors of one element.
func (s *space) bound(x []float32, bounds [][]float32) {
	low, high := bounds[0][0], bounds[1][0]
	kernel.Parallel(s.threads, len(x), func(lo, hi int) {
		for i, v := range x[lo:hi] {
			x[lo+i] = min(max(v, low), high)
		}
	})
}

// project is linear for all tokens, into memory of the space.
func (s *space) project(ctx context.Context, x []float32, l *arch.Linear) ([]float32, error) {
	y := s.take(l.Weight.Rows)
	return y, s.linear(ctx, x, s.tokens(), output{l, y})
}

// projections computes several layers.
func (s *space) projections(ctx context.Context, x []float32, layers ...*arch.Linear) ([][]float32, error) {
	all, to := make([][]float32, len(layers)), make([]output, len(layers))
	for i, l := range layers {
		all[i] = s.take(l.Weight.Rows)
		to[i] = output{l, all[i]}
	}
	return all, s.linear(ctx, x, s.tokens(), to...)
}

// vectors reads several vectors; those without a tensor are nil.
func (s *space) vectors(of ...arch.Weight) (all [][]float32, err error) {
	all = make([][]float32, len(of))
	for i, w := range of {
		if w.Tensor == "" {
			continue
		}
		if all[i], err = s.vector(w); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// norm normalises x; dst may be x, and must be x if the norm may be missing.
func (s *space) norm(dst, x []float32, n *arch.Norm) error {
	if n == nil {
		return nil
	}
	h := s.held.norm(n)
	if h == nil {
		var err error
		if h, err = s.readNorm(n, s.vector); err != nil {
			return err
		}
	}
	h.apply(dst, x)
	return nil
}

// maxWidth bounds a row of activations: offsets within a row, and a sum of a few rows, fit an int on every platform.
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

// finite reports whether x is a number not below least.
func finite(x, least float64) bool { return x >= least && !math.IsInf(x, 0) }
