package reference

import (
	"context"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// groupTokens is how many tokens a group has at most, unless a single window has more: enough to make widening a
// weight cheap beside multiplying with it, and few enough to find activations in a cache.
const groupTokens = 2048

// siluBlock is what SiLU and the product behind it take at a time: the second finds it in the L1 cache.
const siluBlock = 2048

// group is a run of windows whose activations are held at the same time.
type group struct {
	starts    []int // index of each window's first token within the group
	lengths   []int // tokens of each window
	positions []int // of each token within its window
	first     int   // index of the first token among all
}

// activations are the intermediate values of a group, allocated for the largest one.
type activations struct {
	norm []float32 // [tokens, Hidden], input of a block
	out  []float32 // [tokens, Hidden], output of a block
	wide []float32 // queries, keys and values, later gate and up
	rope rotary
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
	width := m.decoder.Hidden
	act := m.activations.Get().(*activations)
	defer m.activations.Put(act)
	act.norm = grow(&act.norm, largest*width)
	act.out = grow(&act.out, largest*width)
	act.wide = grow(&act.wide, largest*(int(m.tokenBytes/4)-2*width))
	if act.rope.positions < longest {
		act.rope = newRotary(m.decoder.Ropes[0], longest)
	}
	for i := range m.decoder.Layers {
		for _, g := range groups {
			if err := m.layer(ctx, m.decoder.Plain(i), h[g.first*width:(g.first+len(g.positions))*width], g, act); err != nil {
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
			g.positions = append(g.positions, pos)
		}
		largest = max(largest, len(g.positions))
	}
	if len(g.positions) > 0 {
		groups = append(groups, g)
	}
	return groups, largest, longest
}

// layer adds attention and MLP to the residual stream h of a group, in place.
func (m *Model) layer(ctx context.Context, l arch.Plain, h []float32, g group, act *activations) error {
	norm, out := act.norm[:len(h)], act.out[:len(h)]
	n := len(g.positions)

	a := l.Attention
	q, rest := cut(act.wide, n*a.Q.Weight.Rows)
	k, rest := cut(rest, n*a.K.Weight.Rows)
	v, _ := cut(rest, n*a.V.Weight.Rows)
	if err := m.norm(norm, h, l.AttentionNorm); err != nil {
		return err
	}
	if err := m.linear(ctx, q, norm, n, &a.Q); err != nil {
		return err
	}
	if err := m.linear(ctx, k, norm, n, &a.K); err != nil {
		return err
	}
	if err := m.linear(ctx, v, norm, n, &a.V); err != nil {
		return err
	}
	if a.QNorm != nil {
		if err := m.norm(q, q, a.QNorm); err != nil {
			return err
		}
	}
	if a.KNorm != nil {
		if err := m.norm(k, k, a.KNorm); err != nil {
			return err
		}
	}
	act.rope.turn(m.threads, q, g, a.Heads, a.HeadDim)
	act.rope.turn(m.threads, k, g, a.KVHeads, a.HeadDim)
	if err := m.attend(ctx, q, k, v, g, a); err != nil {
		return err
	}
	if err := m.linear(ctx, out, q, n, &a.O); err != nil {
		return err
	}
	m.addAll(h, out)

	gate, rest := cut(act.wide, n*l.MLP.Intermediate)
	up, _ := cut(rest, n*l.MLP.Intermediate)
	if err := m.norm(norm, h, l.MLPNorm); err != nil {
		return err
	}
	if err := m.linear(ctx, gate, norm, n, &l.MLP.Gate); err != nil {
		return err
	}
	if err := m.linear(ctx, up, norm, n, &l.MLP.Up); err != nil {
		return err
	}
	m.gate(gate, up)
	if err := m.linear(ctx, out, gate, n, &l.MLP.Down); err != nil {
		return err
	}
	m.addAll(h, out)
	return nil
}

// gate is SiLU(gate) * up, in the place of gate.
func (m *Model) gate(gate, up []float32) {
	kernel.Parallel(m.threads, len(gate), func(lo, hi int) {
		for ; lo < hi; lo += siluBlock {
			end := min(lo+siluBlock, hi)
			g := gate[lo:end]
			kernel.SiLU(g, g)
			kernel.Mul(g, g, up[lo:end])
		}
	})
}

func cut(x []float32, n int) (head, tail []float32) { return x[:n:n], x[n:] }

func (m *Model) addAll(dst, x []float32) {
	kernel.Parallel(m.threads, len(x), func(lo, hi int) { kernel.Add(dst[lo:hi], dst[lo:hi], x[lo:hi]) })
}
