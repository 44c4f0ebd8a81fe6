package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// mixture takes a block of experts through the walk: the router, then the experts, of which one at a time is in memory, or as many as have
// room, and the expert that all tokens share. Experts are chosen once, after the router has its stored weights, so that routing follows
// the quantized model; the float stream has its own.
//
// The moments of an expert are those of the tokens that the quantized stream routes to it, and the float stream's inputs of the
// same expert for the same tokens, see [floorShare] for experts that few tokens are routed to. Rows are added in the order of
// the tokens, chunkTokens at a time, however they were computed.
type mixture struct {
	*walk
	layer  int
	of     []*forward.Mixture // in every stream
	routes []*routing         // of every stream
	out    []*rows            // the outputs of the block in every stream
	inputs []*rows            // what experts read, of all tokens in every stream; nil if that is computed for every expert

	h, x, y []float32
	pairs   [2][]float32
}

// floorShare is the number of tokens below which the moments of an expert are not taken of its own tokens alone, as a share of
// the columns. Tokens of the whole text that are not routed to it make up for those that lack, evenly spaced and computed by the
// expert like the others, so that the inputs of its down projection are its own.
const floorShare = 1

// routing is the choice of experts for all tokens in one stream.
type routing struct {
	weights []float32 // [tokens, TopK]
	// choices are indexes into weights sorted by expert, and within one in the order of the tokens: those of expert j end before
	// ends[j].
	choices, ends []int32
}

// of returns the choices of expert j.
func (r *routing) of(j int) []int32 {
	if j == 0 {
		return r.choices[:r.ends[0]]
	}
	return r.choices[r.ends[j-1]:r.ends[j]]
}

// typical is the root of the mean square of the weights of some choices, or of all if there are none.
func (r *routing) typical(choices []int32) float32 {
	if len(choices) == 0 {
		choices = r.choices
	}
	var sum float64
	for _, c := range choices {
		sum += float64(float64(r.weights[c]) * float64(r.weights[c]))
	}
	return float32(math.Sqrt(sum / float64(len(choices))))
}

// visitMixture visits the inputs of a block of experts and keeps its output.
func (w *walk) visitMixture(ctx context.Context, layer int, t *step) error {
	m := &mixture{walk: w, layer: layer, out: t.kept}
	for _, b := range t.branches {
		m.of = append(m.of, b.Mixture())
	}
	router := m.of[0].Router()
	if err := w.show(ctx, &input{layer: layer, linears: []*forward.Linear{router}}, w.reader(ctx, t, router)); err != nil {
		return err
	}
	if err := m.route(ctx); err != nil {
		return err
	}
	defer func() { m.close(m.inputs) }()
	if err := cmp.Or(m.prepare(ctx), clearRows(m.out)); err != nil {
		return err
	}
	if err := m.experts(ctx); err != nil {
		return err
	}
	return m.shared(ctx)
}

// ticket orders what is done for an expert after those before it, while they are visited at the same time.
type ticket struct {
	before, done chan struct{}  // closed when the expert before is finished, and when this one is
	failed       *error         // of the first expert that failed; belongs to the one whose turn it is
	left         []func() error // by visits, see [input.inTurn]
}

// take waits until the experts before are finished, and does what was left and f, unless the visits ended with an error or an expert before failed.
func (t *ticket) take(err error, f func() error) error {
	if t == nil {
		if err != nil {
			return err
		}
		return f()
	}
	<-t.before
	defer close(t.done)
	if *t.failed == nil {
		for _, f := range append(t.left, f) {
			if err == nil {
				err = f()
			}
		}
		*t.failed = err
	}
	return *t.failed
}

// experts visits the experts that tokens are routed to, as many at the same time as threads and memory allow. They share the threads.
func (m *mixture) experts(ctx context.Context) error {
	all := m.of[0].Experts()
	n := min(expertsWithin(m.walk.experts, m.decoder.Layers[m.layer], m.decoder.Hidden), m.threads, all)
	if n <= 1 {
		for j := range all {
			if err := m.routed(ctx, j); err != nil {
				return err
			}
		}
		return nil
	}
	if err := m.await(); err != nil { // each of them has a walk of its own
		return err
	}
	var (
		mu     sync.Mutex
		next   int
		last   = make(chan struct{})
		failed error
		wait   sync.WaitGroup
	)
	close(last)
	defer kernel.Apart(n)()
	// take is the next expert and its turn.
	take := func() (j int, t *ticket) {
		mu.Lock()
		defer mu.Unlock()
		j, t = next, &ticket{before: last, done: make(chan struct{}), failed: &failed}
		next, last = next+1, t.done
		return j, t
	}
	for range n {
		w := *m.walk
		w.threads = (m.threads + n - 1) / n
		one := &mixture{walk: &w, layer: m.layer, of: m.of, routes: m.routes, out: m.out, inputs: m.inputs}
		wait.Go(func() {
			for {
				var j int
				if j, w.turn = take(); j >= all || one.routed(ctx, j) != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	return failed
}

// route chooses the experts of all tokens.
func (m *mixture) route(ctx context.Context) error {
	topK, n := m.of[0].TopK(), m.tokens()
	chosen := make([][]int32, len(m.streams))
	for k := range m.streams {
		chosen[k] = make([]int32, n*topK)
		m.routes = append(m.routes, &routing{weights: make([]float32, n*topK)})
	}
	if err := m.each(ctx, func(k, row, n int, _ forward.Windows) error {
		h, err := m.streams[k].read(row, n)
		if err != nil {
			return err
		}
		return m.of[k].Route(ctx, chosen[k][row*topK:], m.routes[k].weights[row*topK:], h)
	}); err != nil {
		return err
	}
	for k, r := range m.routes {
		r.choices, r.ends = m.of[k].Members(chosen[k])
	}
	return nil
}

// prepare computes what experts read, of which every token takes several, if that has room in half of the memory that is left.
func (m *mixture) prepare(ctx context.Context) (err error) {
	n, width := m.tokens(), m.decoder.Hidden
	if !m.room.has(8 * int64(len(m.streams)) * int64(n) * int64(width)) {
		return nil
	}
	if m.inputs, err = m.newRows(n, width); err != nil {
		return err
	}
	return m.each(ctx, func(k, row, n int, _ forward.Windows) error {
		h, err := m.streams[k].read(row, n)
		if err != nil {
			return err
		}
		m.x = grow(m.x, n*width)
		x := m.inputs[k].place(m.x, row, n)
		return cmp.Or(m.of[k].Input(ctx, x, h), m.inputs[k].put(x, row))
	})
}

// warnUnseen logs how many experts no token was routed to, and how many less than floorShare asks for.
func (q *quantization) warnUnseen(ctx context.Context) {
	tokens := map[string]int64{}
	for _, op := range q.finished.Ops {
		tokens[op.Tensor] = op.Tokens
	}
	var all, few, unseen int
	count := func(x *arch.Experts) {
		for i := range x.Experts {
			up := x.Experts[i].Up.Weight
			n, ok := tokens[up.Tensor]
			switch {
			case !ok || !q.coded(up.Tensor):
				continue
			case n == 0:
				unseen++
			case n < int64(floorShare*up.Cols):
				few++
			}
			all++
		}
	}
	for _, l := range q.Decoder.Layers {
		for b := range l.Blocks() {
			if x, ok := b.(*arch.Experts); ok {
				count(x)
			}
		}
	}
	if few+unseen > 0 {
		zerolog.Ctx(ctx).Warn().Int("experts", all).Int("unseen", unseen).Int("few", few).
			Msg("few tokens of the text, or none, are routed to some experts, so tokens of others stand in; more text helps")
	}
}

// crowd are the tokens that an expert is computed for.
type crowd struct {
	tokens []int32 // in order
	// samples are, for each input of the expert, the places in tokens of those whose moments are taken. The first own of them are
	// routed to the expert.
	samples [][]int32
	own     int64
	// members are the places in tokens of those whose output counts, in every stream, and weights their weights; nil weights are
	// those of the gate of a shared expert.
	members [][]int32
	weights [][]float32
	// factors multiply inputs, for every token in every stream, or are nil.
	factors [][]float32
}

// routed visits expert j.
func (m *mixture) routed(ctx context.Context, j int) error {
	experts := make([]*forward.Expert, len(m.of))
	for k, of := range m.of {
		var err error
		experts[k], err = of.Load(j)
		defer experts[k].Drop()
		if err != nil {
			return m.turn.take(err, nil)
		}
	}
	return m.visitExpert(ctx, experts, m.crowd(j, experts[0]))
}

// shared visits the expert that all tokens share, if there is one.
func (m *mixture) shared(ctx context.Context) error {
	if m.of[0].Shared() == nil {
		return nil
	}
	var experts []*forward.Expert
	c := &crowd{members: make([][]int32, len(m.of)), weights: make([][]float32, len(m.of))}
	var sample []int32
	for t, counted := range m.counted() {
		c.tokens = append(c.tokens, int32(t))
		if counted {
			sample = append(sample, int32(t))
		}
	}
	c.own, c.samples = int64(len(sample)), [][]int32{sample, sample}
	for k, of := range m.of {
		experts = append(experts, of.Shared())
		c.members[k] = c.tokens
	}
	return m.visitExpert(ctx, experts, c)
}

// crowd finds the tokens of expert j.
func (m *mixture) crowd(j int, expert *forward.Expert) *crowd {
	topK, counted := int32(m.of[0].TopK()), m.counted()
	c := &crowd{}
	var own []int32 // tokens that moments are taken of
	mine := m.routes[0].of(j)
	for _, choice := range mine {
		if t := choice / topK; counted[t] {
			own = append(own, t)
		}
	}
	c.own = int64(len(own))
	var lent [][]int32
	for _, linears := range expert.Inputs() {
		var more []int32
		if m.wanted(&input{layer: m.layer, linears: linears}) {
			more = m.lent(mine, floorShare*linears[0].Cols-len(own))
		}
		lent = append(lent, more)
		c.tokens = append(c.tokens, more...)
	}
	for _, r := range m.routes {
		for _, choice := range r.of(j) {
			c.tokens = append(c.tokens, choice/topK)
		}
	}
	slices.Sort(c.tokens)
	c.tokens = slices.Compact(c.tokens)
	place := func(t int32) int32 {
		i, _ := slices.BinarySearch(c.tokens, t)
		return int32(i)
	}
	for _, more := range lent {
		var sample []int32
		for _, t := range slices.Concat(own, more) {
			sample = append(sample, place(t))
		}
		c.samples = append(c.samples, sample)
	}
	for _, r := range m.routes {
		var members []int32
		var weights []float32
		for _, choice := range r.of(j) {
			members, weights = append(members, place(choice/topK)), append(weights, r.weights[choice])
		}
		c.members, c.weights = append(c.members, members), append(c.weights, weights)
	}
	if m.of[0].ScaleInput() {
		c.scale(m.routes[0].typical(mine))
	}
	return c
}

// scale moves the weights from outputs to inputs. A token that a stream does not route to the expert takes the weight that it
// has in the quantized stream, or else a typical one.
func (c *crowd) scale(typical float32) {
	for k := range c.members {
		f := slices.Repeat([]float32{typical}, len(c.tokens))
		for _, from := range []int{0, k} {
			for i, at := range c.members[from] {
				f[at] = c.weights[from][i]
			}
		}
		c.factors = append(c.factors, f)
	}
	for k, w := range c.weights {
		c.weights[k] = slices.Repeat([]float32{1}, len(w))
	}
}

// lent returns up to n tokens at even distances that none of the choices is of, without the first ones of windows.
func (m *mixture) lent(choices []int32, n int) (tokens []int32) {
	if n <= 0 {
		return nil
	}
	topK := int32(m.of[0].TopK())
	var others []int32
	for t, counted := range m.counted() {
		if len(choices) > 0 && choices[0]/topK == int32(t) {
			choices = choices[1:]
		} else if counted {
			others = append(others, int32(t))
		}
	}
	n = min(n, len(others))
	for i := range n {
		tokens = append(tokens, others[(2*i+1)*len(others)/(2*n)])
	}
	return tokens
}

// visitExpert visits the inputs of an expert and adds its outputs to those of the block.
func (m *mixture) visitExpert(ctx context.Context, experts []*forward.Expert, c *crowd) error {
	inner, err := m.visitInputs(ctx, experts, c)
	defer m.close(inner)
	return m.turn.take(err, func() error {
		for k, x := range experts {
			if err := m.output(ctx, k, x, c, inner[k]); err != nil {
				return err
			}
		}
		return nil
	})
}

// visitInputs visits the inputs of an expert, and returns those of down for all tokens, which the caller closes.
func (m *mixture) visitInputs(ctx context.Context, experts []*forward.Expert, c *crowd) (inner []*rows, err error) {
	in := experts[0].Inputs()
	if err := m.showExpert(ctx, in[0], c, c.samples[0], func(k int, dst []float32, places []int32) error { return m.input(ctx, k, dst, c, places) }); err != nil {
		return nil, err
	}
	if inner, err = m.newRows(len(c.tokens), in[1][0].Cols); err != nil {
		return nil, err
	}
	if err := m.inner(ctx, experts, c, inner); err != nil {
		return inner, err
	}
	return inner, m.showExpert(ctx, in[1], c, c.samples[1], func(k int, dst []float32, places []int32) error { return inner[k].pick(dst, places) })
}

// batches calls f for runs of chunkTokens places.
func batches(ctx context.Context, places []int32, f func(at int, places []int32) error) error {
	for at := 0; at < len(places); at += chunkTokens {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := f(at, places[at:min(at+chunkTokens, len(places))]); err != nil {
			return err
		}
	}
	return nil
}

// input writes what an expert reads in stream k for some tokens.
func (m *mixture) input(ctx context.Context, k int, dst []float32, c *crowd, places []int32) error {
	width := m.decoder.Hidden
	tokens := make([]int32, len(places))
	for i, at := range places {
		tokens[i] = c.tokens[at]
	}
	if m.inputs != nil {
		if err := m.inputs[k].pick(dst, tokens); err != nil {
			return err
		}
	} else {
		m.h = grow(m.h, len(places)*m.decoder.Width())
		if err := m.streams[k].states.pick(m.h, tokens); err != nil {
			return err
		}
		if err := m.of[k].Input(ctx, dst, m.h); err != nil {
			return err
		}
	}
	if c.factors == nil {
		return nil
	}
	for i, at := range places {
		row := dst[i*width : (i+1)*width]
		kernel.Scale(row, row, c.factors[k][at])
	}
	return nil
}

// inner computes what down reads, for all tokens in all streams.
func (m *mixture) inner(ctx context.Context, experts []*forward.Expert, c *crowd, inner []*rows) error {
	all := make([]int32, len(c.tokens))
	for i := range all {
		all[i] = int32(i)
	}
	return batches(ctx, all, func(at int, places []int32) error {
		for k, x := range experts {
			m.x, m.y = grow(m.x, len(places)*m.decoder.Hidden), grow(m.y, len(places)*inner[k].width)
			if err := m.input(ctx, k, m.x, c, places); err != nil {
				return err
			}
			if err := x.Inner(ctx, m.y, m.x); err != nil {
				return err
			}
			if err := inner[k].put(m.y, at); err != nil {
				return err
			}
		}
		return nil
	})
}

// showExpert gathers the moments of an input of an expert and passes them to visit. value writes the inputs of some tokens.
func (m *mixture) showExpert(ctx context.Context, linears []*forward.Linear, c *crowd, sample []int32,
	value func(k int, dst []float32, places []int32) error) error {
	in := &input{layer: m.layer, linears: linears}
	if !m.wanted(in) {
		return m.visitInput(ctx, in, nil)
	}
	cols := linears[0].Cols
	sum := newInputMoments(cols, m.cross)
	if err := batches(ctx, sample, func(_ int, places []int32) error {
		for k := range m.streams {
			m.pairs[k] = grow(m.pairs[k], len(places)*cols)
			if err := value(k, m.pairs[k], places); err != nil {
				return err
			}
		}
		sum.add(m.pairs[0], m.pairs[len(m.streams)-1], len(places), 0, m.threads)
		effort.TallyOf(ctx).AddWork(estimate.Moments(len(places), cols, m.cross))
		return nil
	}); err != nil {
		return err
	}
	st, err := sum.stats(m.threads)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	st.Tokens = c.own
	return m.visitInput(ctx, in, st)
}

// output adds the outputs of an expert in stream k to those of the block.
func (m *mixture) output(ctx context.Context, k int, x *forward.Expert, c *crowd, inner *rows) error {
	width, out := m.decoder.Hidden, m.out[k]
	sum := make([]float32, width)
	return batches(ctx, c.members[k], func(at int, places []int32) error {
		n := len(places)
		m.x, m.y = grow(m.x, n*max(width, inner.width)), grow(m.y, n*width)
		if err := inner.pick(m.x[:n*inner.width], places); err != nil {
			return err
		}
		if err := x.Output(ctx, m.y, m.x[:n*inner.width]); err != nil {
			return err
		}
		weights := c.weights[k]
		if weights == nil {
			if err := m.input(ctx, k, m.x[:n*width], c, places); err != nil {
				return err
			}
			if err := x.Gate(ctx, m.y, m.x[:n*width]); err != nil {
				return err
			}
		}
		for i, place := range places {
			y, token := m.y[i*width:(i+1)*width], int(c.tokens[place])
			if weights != nil {
				kernel.Scale(y, y, weights[at+i])
			}
			row, err := out.get(sum, token, 1)
			if err != nil {
				return err
			}
			kernel.Add(row, row, y)
			if err := out.put(row, token); err != nil {
				return err
			}
		}
		return nil
	})
}
