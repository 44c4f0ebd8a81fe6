package reference

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// groupTokens is how many tokens a group has at most, unless a single window has more: enough to make widening a
// weight cheap beside multiplying with it, and few enough to find activations in a cache.
const groupTokens = 2048

// group is a run of windows whose activations are held at the same time.
type group struct {
	starts    []int // index of each window's first token within the group
	lengths   []int // tokens of each window
	positions []int // of each token within its window
	totals    []int // tokens of each token's window
	first     int   // index of the first token among all
}

// branch is a branch of a layer.
type branch struct {
	arch.Branch
	block block
}

// activations are the intermediate values of a group, allocated for the largest one.
type activations struct {
	norm     []float32 // [tokens, Hidden], input of a block
	out      []float32 // [tokens, Hidden], output of a block
	seen     []float32 // [tokens, Hidden], the stream as parallel branches read it
	floats   []float32
	rotaries map[*arch.Rope]*rotary
}

// forward runs all layers over all windows and returns the residual stream behind the last one.
func (m *Model) forward(ctx context.Context, windows [][]int32, after func(layer int, hidden []float32) error) ([]float32, error) {
	if m.Fit(windows) < len(windows) {
		return nil, m.tooLarge(windows)
	}
	h, err := m.embed(ctx, windows)
	if err != nil {
		return nil, err
	}
	groups, largest, longest := m.groups(windows)
	if float64(longest)*m.fastest > kernel.SincosLimit {
		return nil, fmt.Errorf("rotation by %v radians a position over %d tokens: %w", m.fastest, longest, tensor.ErrUnsupported)
	}
	width := m.decoder.Hidden
	act := m.activations.Get().(*activations)
	defer m.activations.Put(act)
	act.norm = grow(&act.norm, largest*width)
	act.out = grow(&act.out, largest*width)
	if m.parallel {
		act.seen = grow(&act.seen, largest*width)
	}
	act.floats = grow(&act.floats, largest*m.cost.token)
	for _, r := range m.ropes {
		if act.rotaries[r] == nil {
			act.rotaries[r] = &rotary{of: r}
		}
		act.rotaries[r].grow(longest)
	}
	for i, layer := range m.layers {
		for _, g := range groups {
			if err := m.layer(ctx, layer, h[g.first*width:(g.first+len(g.positions))*width], g, act); err != nil {
				return nil, err
			}
		}
		if err := after(i, h); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// groups divides the windows so that the activations of each group fit; Fit has seen to it that every
// single window does.
func (m *Model) groups(windows [][]int32) (groups []group, largest, longest int) {
	for _, w := range windows {
		longest = max(longest, len(w))
	}
	limit := min(m.room(longest)/max(m.tokenBytes, 1), groupTokens)
	var g group
	for _, w := range windows {
		if n := len(g.positions); n > 0 && int64(n+len(w)) > limit {
			groups = append(groups, g)
			g = group{first: g.first + n}
		}
		g.starts = append(g.starts, len(g.positions))
		g.lengths = append(g.lengths, len(w))
		for pos := range w {
			g.positions, g.totals = append(g.positions, pos), append(g.totals, len(w))
		}
		largest = max(largest, len(g.positions))
	}
	if len(g.positions) > 0 {
		groups = append(groups, g)
	}
	return groups, largest, longest
}

// layer adds branches to the residual stream h of a group, in place.
func (m *Model) layer(ctx context.Context, layer []branch, h []float32, g group, act *activations) error {
	norm, out, stream := act.norm[:len(h)], act.out[:len(h)], h
	s := &space{group: g, rotaries: act.rotaries}
	for i, b := range layer {
		if !b.Parallel {
			if stream = h; i+1 < len(layer) && layer[i+1].Parallel {
				stream = act.seen[:len(h)]
				copy(stream, h)
			}
		}
		x := stream
		if b.Norm != nil {
			x = norm
			if err := m.norm(x, stream, b.Norm); err != nil {
				return err
			}
		}
		s.free = act.floats
		if err := b.block.run(ctx, m, out, x, s); err != nil {
			return err
		}
		if b.PostNorm != nil {
			if err := m.norm(out, out, b.PostNorm); err != nil {
				return err
			}
		}
		m.scaleAll(out, b.Scale)
		m.addAll(h, out)
		if b.Gain.Tensor != "" {
			gain, err := m.vector(b.Gain)
			if err != nil {
				return err
			}
			kernel.Parallel(m.threads, len(h), func(lo, hi int) { kernel.Scale(h[lo:hi], h[lo:hi], gain[0]) })
		}
	}
	return nil
}

func cut(x []float32, n int) (head, tail []float32) { return x[:n:n], x[n:] }

func (m *Model) addAll(dst, x []float32) {
	kernel.Parallel(m.threads, len(x), func(lo, hi int) { kernel.Add(dst[lo:hi], dst[lo:hi], x[lo:hi]) })
}

func (m *Model) mulAll(dst, x []float32) {
	kernel.Parallel(m.threads, len(x), func(lo, hi int) { kernel.Mul(dst[lo:hi], dst[lo:hi], x[lo:hi]) })
}

// scaleAll multiplies by a factor of a description, where 0 stands for 1.
func (m *Model) scaleAll(x []float32, factor float64) {
	if f := float32(factor); f != 0 && f != 1 {
		kernel.Parallel(m.threads, len(x), func(lo, hi int) { kernel.Scale(x[lo:hi], x[lo:hi], f) })
	}
}

func (m *Model) siluAll(x []float32) {
	kernel.Parallel(m.threads, len(x), func(lo, hi int) { kernel.SiLU(x[lo:hi], x[lo:hi]) })
}

// pointwise replaces every element of x by f of it, rounded once.
func (m *Model) pointwise(x []float32, f func(float64) float64) {
	kernel.Parallel(m.threads, len(x), func(lo, hi int) {
		for i, v := range x[lo:hi] {
			x[lo+i] = float32(f(float64(v)))
		}
	})
}
