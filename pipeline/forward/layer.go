package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// GroupTokens is how many tokens a group has at most, unless a single window has more or [Windows] asks for more: enough to make reading a
// weight cheap compared with multiplying by it, and few enough for activations to stay in a cache. It affects bits of gradients.
const GroupTokens = 2048

// Windows describes the windows that states [tokens, Hidden] belong to, one after another.
type Windows struct {
	Lengths []int // in tokens
	// Places are the positions of all tokens, by axis, if they are others than the indices within the windows.
	Places [][]int
	// Ends, if not nil, are the last tokens of the pictures that the tokens of the only window are part of, or the tokens themselves. A token
	// attends to all up to there.
	Ends []int
	// Most bounds the tokens that are computed at a time, in whole windows; values below 1 mean [GroupTokens].
	Most int64
}

// Equal returns n windows of length tokens.
func Equal(n, length int) Windows { return Windows{Lengths: slices.Repeat([]int{length}, n)} }

// group is a run of windows whose activations are held at the same time.
type group struct {
	starts    []int   // index of each window's first token within the group
	lengths   []int   // tokens of each window
	positions []int   // of each token within its window
	places    [][]int // Windows.Places of the group
	ends      []int
	totals    []int // tokens of each token's window
	first     int   // index of the first token among all
}

// groups divides the windows into groups.
func (w Windows) groups() (groups []group, largest, longest int) {
	limit := w.Most
	if limit < 1 {
		limit = GroupTokens
	}
	var g group
	for _, length := range w.Lengths {
		if n := len(g.positions); n > 0 && int64(n+length) > limit {
			groups = append(groups, w.placed(g))
			g = group{first: g.first + n}
		}
		g.starts = append(g.starts, len(g.positions))
		g.lengths = append(g.lengths, length)
		g.positions, g.totals = slices.Grow(g.positions, length), slices.Grow(g.totals, length)
		for pos := range length {
			g.positions, g.totals = append(g.positions, pos), append(g.totals, length)
		}
		largest, longest = max(largest, len(g.positions)), max(longest, length)
	}
	if len(g.positions) > 0 {
		groups = append(groups, w.placed(g))
	}
	return groups, largest, longest
}

// placed returns a finished group with its places.
func (w Windows) placed(g group) group {
	g.ends = w.Ends
	for _, axis := range w.Places {
		g.places = append(g.places, axis[g.first:g.first+len(g.positions)])
	}
	return g
}

// Layer is a layer of a model. One that is loaded belongs to one goroutine at a time.
type Layer struct {
	Index    int
	model    *Model
	branches []branch
	held     *held // or nil
}

// Layer returns layer i, which reads its weights when it runs.
func (m *Model) Layer(i int) *Layer { return &Layer{Index: i, model: m, branches: m.layers[i]} }

// LoadLayer reads the weights of layer i.
func (m *Model) LoadLayer(i int) (*Layer, error) {
	l, err := m.OpenLayer(i)
	if err != nil {
		return nil, err
	}
	for _, b := range l.branches {
		if _, err := l.held.load(b.block.inputs()...); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return l, nil
}

// OpenLayer reads the norms of layer i. Linear layers are read when they are used, unless they are loaded: see [Linear.Load],
// [Layer.LoadCommon] and [Mixture.Load].
func (m *Model) OpenLayer(i int) (*Layer, error) {
	l := m.Layer(i)
	l.held = &held{linears: map[*arch.Linear]*Linear{}, norms: map[*arch.Norm]*Norm{}}
	for _, b := range l.branches {
		for _, x := range slices.Concat(b.block.inputs()...) {
			l.held.linears[x] = m.linearOf(x)
		}
		for _, n := range append(b.block.norms(), b.Norm, b.PostNorm, b.SumNorm) {
			if n == nil {
				continue
			}
			var err error
			if l.held.norms[n], err = m.readNorm(n, m.values); err != nil {
				return nil, fmt.Errorf("layer %d: %w", i, err)
			}
		}
	}
	return l, nil
}

// Changed is a loaded layer whose linear layers of some tensors have the weights of another model of the same decoder. It is of that model,
// and shares all other weights that are in memory.
func (l *Layer) Changed(m *Model, tensors func(name string) bool) (*Layer, error) {
	c := m.Layer(l.Index)
	c.held = &held{linears: map[*arch.Linear]*Linear{}, norms: l.held.norms}
	for of, x := range l.held.linears {
		if inMemory := x.InMemory(); tensors(of.Weight.Tensor) || !inMemory {
			x = m.linearOf(of)
			if inMemory && kernel.HasDevice() { // which computes branches whose weights are in memory
				if err := x.Load(); err != nil {
					return nil, err
				}
			}
		}
		c.held.linears[of] = x
	}
	return c, nil
}

// LayerWithin opens layer i and reads as many of its weights as so many bytes hold: all, or all but those of experts that tokens are
// routed to, or none.
func (m *Model) LayerWithin(i int, bytes int64) (*Layer, error) {
	all, common := m.Layer(i).Bytes()
	if all <= bytes {
		return m.LoadLayer(i)
	}
	l, err := m.OpenLayer(i)
	if err == nil && common <= bytes {
		err = l.LoadCommon()
	}
	return l, err
}

// LoadCommon reads the linear layers of an opened layer but those of experts that tokens are routed to.
func (l *Layer) LoadCommon() error {
	for _, b := range l.branches {
		if _, err := l.held.load(b.common()...); err != nil {
			return fmt.Errorf("layer %d: %w", l.Index, err)
		}
	}
	return nil
}

// Release gives the memory of the linear layers to those that are loaded next. Neither the layer nor its weights may be used afterwards.
func (l *Layer) Release() {
	l.model.lock.Lock()
	defer l.model.lock.Unlock()
	l.model.spare = l.model.spare[:0]
	for _, x := range l.held.linears {
		l.model.spare = append(l.model.spare, x)
	}
	l.held = nil
}

// Bytes is the memory that the matrices of a layer take: all of them, and those that LoadCommon reads.
func (l *Layer) Bytes() (all, common int64) {
	sum := func(groups [][]*arch.Linear) (n int64) {
		for _, x := range slices.Concat(groups...) {
			n += 8 * int64(x.Weight.Rows) * int64(x.Weight.Cols) // plain and packed
		}
		return n
	}
	for _, b := range l.branches {
		all, common = all+sum(b.block.inputs()), common+sum(b.common())
	}
	return all, common
}

// EachLinear calls f with every linear layer of layer i in the order of the computation, one of them in memory at a time.
func (m *Model) EachLinear(i int, f func(l *Linear) error) error {
	for _, b := range m.layers[i] {
		for _, of := range slices.Concat(b.block.inputs()...) {
			l, err := m.loadLinear(of)
			if err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
			if err := f(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls f with a space for every group of windows, and the stream of the group's part of the states h.
func (l *Layer) each(ctx context.Context, h []float32, w Windows, f func(s *space, h []float32) error) error {
	width := l.model.decoder.Width()
	return l.spaces(ctx, w, func(s *space) error {
		return s.parted(h[s.first*width:][:s.tokens()*width], func(h []float32) error { return f(s, h) })
	})
}

// spaces calls f with a space for every group of windows.
func (l *Layer) spaces(ctx context.Context, w Windows, f func(s *space) error) error {
	m := l.model
	groups, largest, longest := w.groups()
	if err := m.reach(longest); err != nil {
		return err
	}
	a := m.arenas.Get().(*arena)
	defer m.arenas.Put(a)
	n := largest * m.cost.token
	if cap(a.floats) < n {
		a.floats = kernel.Scratch(n)
	}
	free := a.floats[:n]
	for _, g := range groups {
		if err := f(&space{Model: m, group: g, held: l.held, free: free, tally: effort.TallyOf(ctx), givesWay: givesWay(ctx)}); err != nil {
			return err
		}
	}
	return nil
}

// Forward turns the states h [tokens, Width] before the layer into those after it, in place.
func (l *Layer) Forward(ctx context.Context, h []float32, w Windows) error {
	return l.each(ctx, h, w, func(s *space, h []float32) error { return s.forward(ctx, l.branches, h) })
}

// forward adds branches to the residual stream h of a group, in place.
func (s *space) forward(ctx context.Context, branches []branch, h []float32) error {
	if ok, err := s.forwardOffloaded(ctx, branches, h); ok || err != nil {
		return err
	}
	free, stream := s.free, h
	for i := range branches {
		b := &branches[i]
		if !b.Parallel {
			s.free, stream = free, h
			if i+1 < len(branches) && branches[i+1].Parallel {
				stream = s.clone(h)
			}
		}
		mine := s.free
		out, err := s.branch(ctx, b, stream)
		if err == nil {
			err = s.add(b, h, out)
		}
		if err != nil {
			return err
		}
		s.free = mine
	}
	return nil
}

// branch returns the output of the block of a branch for the states h.
func (s *space) branch(ctx context.Context, b *branch, h []float32) ([]float32, error) {
	free := s.free
	if b.chained() && kernel.HasDevice() {
		out := s.take(s.decoder.Hidden)
		if ok, err := s.offloaded(ctx, out, h, b, true); ok || err != nil {
			return out, err
		}
		s.free = free
	}
	x := h
	if b.Norm != nil {
		x = s.take(s.decoder.Hidden)
		if err := s.norm(x, h, b.Norm); err != nil {
			return nil, err
		}
	}
	y, err := b.block.run(ctx, s, x)
	if l := b.block.last(); err == nil && l != nil {
		return s.project(ctx, y, l)
	}
	return y, err
}

// finish turns the output of a block, out, into the summand of the stream, in place.
func (s *space) finish(b *branch, out []float32) error {
	err := cmp.Or(s.norm(out, out, b.PostNorm), s.multiply(b, out))
	s.scaleAll(out, b.Scale)
	return err
}

// multiply multiplies the elements of rows by the Factors of a branch.
func (s *space) multiply(b *branch, x []float32) error {
	if b.Factors.Tensor == "" {
		return nil
	}
	factors, err := s.vector(b.Factors)
	if err != nil {
		return err
	}
	width := len(factors)
	kernel.Parallel(s.threads, len(x)/width, func(lo, hi int) {
		for ; lo < hi; lo++ {
			row := x[lo*width : (lo+1)*width]
			kernel.Mul(row, row, factors)
		}
	})
	return nil
}

// add adds the output of a block, out, to the stream h, and normalises the stream.
func (s *space) add(b *branch, h, out []float32) error {
	return cmp.Or(s.addOnly(b, h, out), s.norm(h, h, b.SumNorm))
}

// addOnly is add without the last norm.
func (s *space) addOnly(b *branch, h, out []float32) error {
	err := s.finish(b, out)
	s.addAll(h, out)
	return cmp.Or(err, s.gain(b, h))
}

// gain multiplies h by the factor of a branch.
func (s *space) gain(b *branch, h []float32) error {
	if b.Gain.Tensor == "" {
		return nil
	}
	gain, err := s.vector(b.Gain)
	if err != nil {
		return err
	}
	kernel.Parallel(s.threads, len(h), func(lo, hi int) { kernel.Scale(h[lo:hi], h[lo:hi], gain[0]) })
	return nil
}

// Linears lists the linear layers of a loaded or opened layer in the order of the computation.
func (l *Layer) Linears() (all []*Linear) {
	for _, b := range l.branches {
		for _, in := range b.block.inputs() {
			all = append(all, l.held.all(in)...)
		}
	}
	return all
}

// Norms lists the norms of a loaded layer.
func (l *Layer) Norms() (all []*Norm) {
	for _, b := range l.branches {
		for _, n := range append([]*arch.Norm{b.Norm, b.PostNorm, b.SumNorm}, b.block.norms()...) {
			if n != nil {
				all = append(all, l.held.norm(n))
			}
		}
	}
	return all
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

// pointwise replaces every element of x by a function of it, rounded once: f computes it of at most functionBlock of them, in place.
func (m *Model) pointwise(x []float32, f func(block []float64)) {
	kernel.Parallel(m.threads, len(x), func(lo, hi int) { inBlocks(x[lo:hi], x[lo:hi], f) })
}

// inBlocks writes a function of the elements of x to dst, which may be x: f computes it of at most functionBlock of them, in place.
func inBlocks(dst, x []float32, f func(block []float64)) {
	var block [functionBlock]float64
	for len(x) > 0 {
		b := block[:min(len(block), len(x))]
		for i := range b {
			b[i] = float64(x[i])
		}
		f(b)
		for i, y := range b {
			dst[i] = float32(y)
		}
		dst, x = dst[len(b):], x[len(b):]
	}
}
