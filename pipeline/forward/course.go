package forward

import (
	"context"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// course is branches as a device takes them: of the next token of the windows of a cache, or of whole windows.
type course struct {
	kernel.Chain
	model    *Model
	cache    *Cache // or nil
	held     *held  // the weights of whole windows
	remote   bool   // all weights of the cache fit on the device but not in this memory: they are read when the device needs them
	matrices map[place]int
	work     effort.Work // of a row, without scores and reading keys and values
	scores   effort.Work // of whole windows
	way      *way        // back through the branches of whole windows, or nil
}

// place is a matrix of a chain: what it is for, and how wide it is.
type place struct {
	role
	width int
}

type role uint8

const (
	states role = iota
	normed
	queries0
	keys0
	values0
	inner
	factors
	outputs
)

// matrix returns the index of a matrix.
func (r *course) matrix(of role, width int) int {
	if r.way != nil {
		return r.fresh(width)
	}
	i, ok := r.matrices[place{of, width}]
	if !ok {
		i = len(r.Widths)
		r.matrices[place{of, width}] = i
		r.Widths = append(r.Widths, width)
	}
	return i
}

// next returns a matrix for what follows from another one: of a course with a way back not the same, which gradients need.
func (r *course) next(m int) int {
	if r.way == nil {
		return m
	}
	return r.fresh(r.Widths[m])
}

// fresh returns a matrix that nothing else is in.
func (r *course) fresh(width int) int {
	r.Widths = append(r.Widths, width)
	return len(r.Widths) - 1
}

func (r *course) add(s ...kernel.Step) { r.Steps = append(r.Steps, s...) }

// branch adds a branch that changes the states, and reports whether devices compute it.
func (r *course) branch(ctx context.Context, b *branch) (bool, error) {
	if !b.adds() {
		return false, nil
	}
	out, ok, err := r.output(ctx, b, 0, true)
	if !ok || err != nil {
		return ok, err
	}
	if ok, err := r.norm(out, out, b.PostNorm); !ok || err != nil {
		return ok, err
	}
	r.add(&kernel.AddStep{Dst: 0, Src: out})
	return true, nil
}

// output adds the output of a branch for states before its scale and norm, and returns its matrix. With a way back it is left out unless it is wanted.
func (r *course) output(ctx context.Context, b *branch, states int, wanted bool) (out int, ok bool, err error) {
	if e, mixed := b.block.(experts); mixed {
		x, ok, err := r.before(b, states)
		if !ok || err != nil {
			return 0, ok, err
		}
		return r.experts(ctx, e, x, wanted)
	}
	read, ok, err := r.input(ctx, b, states)
	if !ok || err != nil {
		return 0, ok, err
	}
	last := b.block.last()
	if w := r.way; w != nil {
		block := w.block
		w.block = func(dy int) int { return block(r.gather(read, linearBack{last, dy})) }
	}
	if wanted {
		out = r.matrix(outputs, r.model.decoder.Hidden)
		ok, err = r.linear(ctx, out, read, last)
	}
	return out, ok, err
}

// before adds the norm before a block for states, and returns the matrix that the block reads.
func (r *course) before(b *branch, states int) (x int, ok bool, err error) {
	if b.Norm == nil {
		return states, true, nil
	}
	x = r.matrix(normed, r.model.decoder.Hidden)
	ok, err = r.norm(x, states, b.Norm)
	return x, ok, err
}

// input adds what the last layer of a branch reads for states, and returns its matrix.
func (r *course) input(ctx context.Context, b *branch, states int) (read int, ok bool, err error) {
	x, ok, err := r.before(b, states)
	if !ok || err != nil {
		return 0, ok, err
	}
	switch block := b.block.(type) {
	case attention:
		return r.attention(ctx, block, x)
	case mlp:
		return r.mlp(ctx, block, x)
	case delta:
		return r.delta(ctx, block, x)
	case mamba:
		return r.mamba(ctx, block, x)
	case shortConv:
		return r.shortConv(ctx, block, x)
	}
	return 0, false, nil
}

// vector is a vector as the device takes it: one of tokens is read again and again.
func (r *course) vector(x []float32) kernel.Factor {
	f := kernel.Vector(x)
	if r.cache == nil {
		f.Version = 0
	}
	return f
}

// norm adds a norm, if it is not nil.
func (r *course) norm(dst, src int, n *arch.Norm) (bool, error) {
	if n == nil {
		return true, nil
	}
	if n.Centered || n.Beta.Tensor != "" || n.Parts > 1 {
		return false, nil
	}
	read := r.held.norm(n)
	if read == nil {
		var err error
		if read, err = r.model.readNorm(n, r.model.vector); err != nil {
			return false, err
		}
	}
	r.add(&kernel.NormStep{Dst: dst, Src: src, Gamma: r.vector(read.Gamma), Eps: read.Eps})
	return true, nil
}

// normed adds a norm, if it is not nil, and returns the matrix of the result.
func (r *course) normed(m int, n *arch.Norm) (to int, ok bool, err error) {
	if n == nil {
		return m, true, nil
	}
	to = r.next(m)
	ok, err = r.norm(to, m, n)
	return to, ok, err
}

// factor returns the matrix of a linear layer, which is missing if its weights are not in memory, or if its inputs or outputs are bounded.
func (r *course) factor(ctx context.Context, l *arch.Linear) (f factor, err error) {
	if l.Clip != nil {
		return f, nil
	}
	if h := r.held.linear(l); h != nil && h.InMemory() {
		return h.factor(nil), nil
	}
	if r.cache == nil {
		return f, nil
	}
	if !r.remote {
		return r.model.factor(ctx, output{l, nil})
	}
	if l.Bias.Tensor != "" {
		f.bias, err = r.model.vector(l.Bias)
	}
	f.unread = r.model.unread(ctx, l)
	return f, err
}

// linear adds a linear layer, if its weights are in memory.
func (r *course) linear(ctx context.Context, dst, src int, l *arch.Linear) (bool, error) {
	f, err := r.factor(ctx, l)
	if f.missing() || err != nil {
		return false, err
	}
	r.add(&kernel.LinearStep{Dst: dst, Src: src, Weights: f.right(), Bias: r.vector(f.bias)})
	var t effort.Tally
	t.Linear(1, l.Weight.Rows, l.Weight.Cols)
	r.work = r.work.Plus(t.Done())
	return true, nil
}

// gated multiplies a matrix by the sigmoid of a linear layer of x, whose result is in the matrix by.
func (r *course) gated(ctx context.Context, m, by, x int, l *arch.Linear) (bool, error) {
	if ok, err := r.linear(ctx, by, x, l); !ok || err != nil {
		return ok, err
	}
	r.add(&kernel.SigmoidStep{Matrix: m, By: by})
	r.work[effort.Element] += float64(r.Widths[by])
	return true, nil
}

// attention adds what makes the input of the last layer of attention, and returns its matrix.
func (r *course) attention(ctx context.Context, a attention, x int) (out int, ok bool, err error) {
	if a.K.Weight.Tensor == "" || a.V.Weight.Tensor == "" || r.way != nil && a.Gate.Weight.Tensor != "" || a.Sinks.Tensor != "" || a.Clip != 0 || a.Cap != 0 ||
		a.Slopes != nil || a.Relative != nil || a.Temperature != nil || a.Lends || a.NormAfter || a.Bidirectional {
		return 0, false, nil
	}
	qWidth, kvWidth := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	all := [...]projection{
		{of: &a.Q, norm: a.QNorm, plain: r.matrix(queries0, qWidth)}, {of: &a.K, norm: a.KNorm, plain: r.matrix(keys0, kvWidth)},
		{of: &a.V, norm: a.VNorm, plain: r.matrix(values0, kvWidth)},
	}
	for _, p := range all { // one after the other, so that devices multiply by them together
		if ok, err := r.linear(ctx, p.plain, x, p.of); !ok || err != nil {
			return 0, ok, err
		}
	}
	for i := range all {
		p := &all[i]
		if p.at, ok, err = r.normed(p.plain, p.norm); !ok || err != nil {
			return 0, ok, err
		}
	}
	q, k, v := all[0].at, all[1].at, all[2].at
	if a.Rope != nil && a.Rope.Dim > 0 {
		tokens := r.Longest()
		if r.cache != nil {
			tokens = r.cache.length
		}
		t := r.model.turned(a.Rope, tokens)
		r.turn(a, q, k, t.dim, t.cos[:tokens*t.dim], t.sin[:tokens*t.dim])
	}
	h := heads{count: a.Heads, shared: a.Heads / a.KVHeads, scale: a.Scale, mask: a.mask()}
	if a.Scale == 0 {
		h.scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	attend := &kernel.AttendStep{
		Dst: r.next(q), Queries: q, Keys: k, Values: v, Heads: a.Heads, Scale: float32(h.scale), Together: queryRows,
		Span: func(at int) (from, first int) {
			from, _ = h.span(h.last(at), at+1)
			first, _ = h.mask(at, at+1)
			return from, first
		},
	}
	r.add(attend)
	if c := r.cache; c != nil {
		attend.Past = len(r.Pasts.Of)
		r.Pasts.Of = append(r.Pasts.Of, kernel.Past{Heads: a.KVHeads, Key: a.HeadDim, Value: a.HeadDim,
			Of: func(window, head int) (keys, values *kernel.Packed) {
				p := &c.pasts[block(a)][window]
				return &p.keys[head], &p.values[head]
			}})
	} else {
		h.parts, h.valueDim = []part{{dim: a.HeadDim}}, a.HeadDim
		r.scores = r.scores.Plus(h.work(r.Windows, queryRows, 2))
	}
	if a.Gate.Weight.Tensor != "" {
		if ok, err := r.gated(ctx, attend.Dst, r.matrix(factors, qWidth), x, &a.Gate); !ok || err != nil {
			return 0, ok, err
		}
	}
	out, ok, err = r.normed(attend.Dst, a.OutNorm)
	if r.way != nil {
		attend.Weights = r.fresh(a.Heads * r.Longest())
		r.way.block = func(d int) int { return r.attentionBack(a, x, all[:], attend, d) }
	}
	return out, ok, err
}

// turn rotates queries and keys.
func (r *course) turn(a attention, q, k, dim int, cos, sin []float32) {
	c, s := r.vector(cos), r.vector(sin)
	r.add(&kernel.RotateStep{Matrix: q, Heads: a.Heads, Dim: a.HeadDim, Turned: dim, Cos: c, Sin: s},
		&kernel.RotateStep{Matrix: k, Heads: a.KVHeads, Dim: a.HeadDim, Turned: dim, Cos: c, Sin: s})
}

// chained reports whether devices compute the activation of an MLP.
func (p mlp) chained() bool {
	return p.Activation == arch.SiLU && p.gated() && (p.GateScale == 0 || p.GateScale == 1)
}

// mlp adds what makes the input of the last layer of an MLP, and returns its matrix.
func (r *course) mlp(ctx context.Context, p mlp, x int) (out int, ok bool, err error) {
	if !p.chained() {
		return 0, false, nil
	}
	gate, up := r.matrix(inner, p.Intermediate), r.matrix(factors, p.Intermediate)
	if ok, err := r.linear(ctx, gate, x, &p.Gate); !ok || err != nil {
		return 0, ok, err
	}
	if ok, err := r.linear(ctx, up, x, &p.Up); !ok || err != nil {
		return 0, ok, err
	}
	plain := r.next(gate)
	r.add(&kernel.GateStep{Dst: plain, Matrix: gate, By: up})
	r.work[effort.Element] += float64(p.Intermediate)
	if r.way != nil {
		r.way.block = func(d int) int { return r.mlpBack(p, x, gate, up, plain, d) }
	}
	return r.normed(plain, p.Norm)
}

// chained reports whether a device may compute the block of a branch.
func (b *branch) chained() bool {
	if e, ok := b.block.(experts); ok {
		return e.Shared == nil || e.Shared.Down.Clip == nil
	}
	last := b.block.last()
	return last != nil && last.Clip == nil
}

// offloaded lets the device compute a branch for the states h of the group: its output before scale and norm, or what its last layer reads.
// It reports false if the device does not; dst is arbitrary then.
func (s *space) offloaded(ctx context.Context, dst, h []float32, b *branch, whole bool) (bool, error) {
	r := s.course(h, dst)
	if r == nil || !b.chained() {
		return false, nil
	}
	var ok bool
	var err error
	if whole {
		r.Result, ok, err = r.output(ctx, b, 0, true)
	} else {
		r.Result, ok, err = r.input(ctx, b, 0)
	}
	if !ok || err != nil {
		return false, err
	}
	return r.offload(s), context.Cause(ctx)
}

// forwardOffloaded lets the device take the states h of the group through several branches. It reports false if the device does not.
func (s *space) forwardOffloaded(ctx context.Context, branches []branch, h []float32) (bool, error) {
	if !kernel.HasDevice() || len(branches) < 2 || slices.ContainsFunc(branches, func(b branch) bool { return !b.chained() }) {
		return false, nil
	}
	free := s.free
	defer func() { s.free = free }()
	r := s.course(h, s.take(s.decoder.Hidden))
	if r == nil {
		return false, nil
	}
	for i := range branches {
		if ok, err := r.branch(ctx, &branches[i]); !ok || err != nil {
			return false, err
		}
	}
	if !r.offload(s) {
		return false, nil
	}
	kernel.Copy(s.threads, h, r.Out)
	return true, context.Cause(ctx)
}

// offload reports whether the device computed the course.
func (r *course) offload(s *space) bool {
	if !kernel.Offload(&r.Chain) || !kernel.Finite(s.threads, r.Out) { // the bits of NaN are not those of a CPU
		return false
	}
	s.tally.AddWork(r.workOf(r.Rows).Plus(r.scores))
	return true
}

// workOf is the work of so many rows, without scores: weights are read once for all of them.
func (r *course) workOf(rows int) effort.Work {
	w := r.work.Times(float64(rows))
	w[effort.Memory] = r.work[effort.Memory]
	return w
}

// course returns one of the states h of the group, whose result goes to dst, or nil if devices do not compute such groups.
func (s *space) course(h, dst []float32) *course {
	if !kernel.HasDevice() || s.cache != nil || s.places != nil || s.ends != nil || s.held == nil || s.observe != nil || s.decoder.Side != 0 {
		return nil
	}
	for _, n := range s.lengths {
		if n != s.lengths[0] { // rotations may depend on it
			return nil
		}
	}
	r := &course{model: s.Model, held: s.held, matrices: map[place]int{}}
	r.Rows, r.Windows, r.States, r.Out = s.tokens(), s.lengths, h[:s.tokens()*s.decoder.Hidden], dst
	r.GivesWay = s.givesWay
	r.matrix(states, s.decoder.Hidden)
	return r
}
