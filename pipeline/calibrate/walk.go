package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// input is a vector that linear layers of the model read.
type input struct {
	// layer is the index, or the number of layers for the head.
	layer int
	// linears are the layers that read the vector. They belong to the stream being quantized: later ops read the outputs of any
	// weights put into them.
	linears []*forward.Linear
	// added: the outputs of the only layer that reads the vector are added to the states as they are, and nothing else with them.
	added bool
	// meanwhile, if not nil, is what the float stream does while the input is visited; background is that the walk goes on before the end of
	// the visit.
	meanwhile  func() error
	background bool
	// flowing: rows are computed while those before them are shown, both by a device.
	flowing bool

	threads int     // that visit may use
	turn    *ticket // nil, unless inputs of other experts are visited at the same time
}

// inTurn calls f after those of all inputs before: at once, unless inputs of other experts are visited at the same time.
func (in *input) inTurn(f func() error) error {
	if in.turn == nil {
		return f()
	}
	in.turn.left = append(in.turn.left, f)
	return nil
}

// String returns the name of the first matrix that reads the vector.
func (in *input) String() string { return in.linears[0].Weight.Tensor }

// headInput is the name of the head among the linear layers.
const headInput = "head"

// walk takes all windows, and then all items, through the model, layer by layer and, within a layer, input by input.
type walk struct {
	decoder *arch.Decoder
	model   *forward.Model
	windows [][]int32
	items   []item
	// skip is the number of first tokens of a window that statistics leave out.
	skip    int
	chunk   int // tokens that are in memory at a time, in whole windows
	threads int
	dir     string // for activations that do not fit into memory
	room    *room
	weights int64 // bytes for the weights of a layer
	// sequential: visit replaces weights, and later ops read the outputs of the replacements.
	sequential bool
	// cross requests the moments between the float stream and the quantized one.
	cross bool
	// lookup has the lookup table of the quantized stream, if not nil.
	lookup *forward.Model
	// wanted reports whether the statistics of an input are needed; if not, visit gets nil.
	wanted func(in *input) bool
	// visit is called with every input, in order. In a sequential walk it may replace the weights of the input's linear layers.
	visit func(ctx context.Context, in *input, st *quant.Stats) error
	// background: no later op depends on a visit, so that the walk may go on meanwhile.
	background bool
	// experts is the memory, in bytes, for experts that are visited at the same time as another one: several goroutines call wanted and
	// visit then, which takes what is in order in turn. 0 visits one after the other.
	experts int64
	turn    *ticket // of the expert at hand, or nil
	// passes, if not nil, reports whether a layer has nothing to visit: its weights are the same in all streams.
	passes func(layer int) bool
	// after, if not nil, is called after every layer; end, if not nil, instead of visiting the input of the head.
	after func(ctx context.Context, layer int) error
	end   func(ctx context.Context) error

	streams []*stream                // the quantized one first
	layers  *ahead[[]*forward.Layer] // of every stream, which do not pass
	layer   int                      // that is visited
	visited chan error               // of the visit that goes on in the background, or nil
}

// stream holds the states of the float model or of the quantized one between layers.
type stream struct {
	lookup *forward.Model // of rows for tokens
	layer  *forward.Layer
	states *rows // [tokens, Width]

	a, b []float32 // rows of states, and of an input
}

// read returns rows of states, valid at most until the next call.
func (s *stream) read(row, n int) ([]float32, error) {
	if s.states.mem == nil {
		s.a = grow(s.a, n*s.states.width)
	}
	return s.states.get(s.a, row, n)
}

// input returns where rows of an input are that are kept, or can be computed before they are put: in place or in memory that is valid until
// the next call.
func (s *stream) input(kept *rows, n int) []float32 {
	if kept.mem == nil {
		s.b = grow(s.b, n*kept.width)
	}
	return s.b
}

// newRows allocates n vectors for every stream. Those of all tokens, which are used again and again, are worth that a device is told of them.
func (w *walk) newRows(n, width int) (all []*rows, err error) {
	for range w.streams {
		m, err := newRows(w.room, w.dir, n, width)
		if err != nil {
			w.close(all)
			return nil, err
		}
		if n == w.tokens() {
			w.room.pin(m)
		}
		all = append(all, m)
	}
	return all, nil
}

func (w *walk) close(all []*rows) {
	for _, m := range all {
		m.close(w.room)
	}
}

// run takes all windows through the model.
func (w *walk) run(ctx context.Context) (err error) {
	defer w.room.close()
	defer func() { err = cmp.Or(err, w.await()) }()
	if w.sequential {
		w.streams = append(w.streams, &stream{lookup: cmp.Or(w.lookup, w.model)})
	}
	if !w.sequential || w.cross {
		w.streams = append(w.streams, &stream{lookup: w.model})
	}
	states, err := w.newRows(w.tokens(), w.decoder.Width())
	if err != nil {
		return err
	}
	defer w.close(states)
	for k, s := range w.streams {
		s.states = states[k]
	}
	w.layers = &ahead[[]*forward.Layer]{load: w.openLayers, fits: func(of []*forward.Layer) bool { return w.holds(of[0], 2) }}
	for i := range w.decoder.Layers {
		if !w.passing(i) {
			w.layers.order = append(w.layers.order, i)
		}
	}
	defer w.layers.wait()
	if err := w.embed(ctx); err != nil {
		return err
	}
	for i := range w.decoder.Layers {
		advance := w.runLayer
		if w.passing(i) {
			advance = w.pass
		}
		if err := advance(ctx, i); err != nil {
			return err
		}
		if err := w.deepen(ctx, i); err != nil {
			return err
		}
		if w.after != nil {
			if err := w.after(ctx, i); err != nil {
				return err
			}
		}
	}
	if err := w.await(); err != nil {
		return err
	}
	w.layer = len(w.decoder.Layers)
	if w.end != nil {
		return w.end(ctx)
	}
	return w.head(ctx)
}

// passing reports whether the streams pass a layer. One that exceeds the memory is taken expert by expert instead.
func (w *walk) passing(i int) bool {
	all, _ := w.model.Layer(i).Bytes()
	return w.passes != nil && w.passes(i) && all <= w.weights
}

// pass takes the streams through a layer that has nothing to visit, which is in memory once for all of them.
func (w *walk) pass(ctx context.Context, i int) error {
	w.layer = i
	l, err := w.model.LoadLayer(i)
	if err != nil {
		return err
	}
	defer l.Release()
	return w.each(ctx, func(k, row, n int, of forward.Windows) error {
		s := w.streams[k]
		h, err := s.read(row, n)
		if err != nil {
			return err
		}
		if err := l.Forward(ctx, h, of); err != nil {
			return err
		}
		if !kernel.Finite(w.threads, h) {
			return fmt.Errorf("layer %d: the states after it are NaN or infinite", i)
		}
		return s.states.put(h, row)
	})
}

// openLayers opens a layer for every stream, with its weights if they have room.
func (w *walk) openLayers(i int) (of []*forward.Layer, err error) {
	for range w.streams {
		l, err := w.model.OpenLayer(i)
		if err == nil && w.holds(l, 1) {
			err = l.LoadCommon()
		}
		if err != nil {
			return nil, err
		}
		of = append(of, l)
	}
	return of, nil
}

// runLayer visits the inputs of a layer and advances the streams through it.
func (w *walk) runLayer(ctx context.Context, i int) error {
	w.layer = i
	layers, err := w.layers.next()
	if err != nil {
		return err
	}
	branches := make([][]*forward.Branch, len(w.streams))
	for k, s := range w.streams {
		s.layer = layers[k]
		branches[k] = s.layer.Branches()
	}
	for at, end := 0, 0; at < len(branches[0]); at = end {
		for end = at + 1; end < len(branches[0]) && branches[0][end].Parallel(); {
			end++
		}
		var parallel []step
		for b := at; b < end; b++ {
			t := step{together: end > at+1}
			for k := range w.streams {
				t.branches = append(t.branches, branches[k][b])
			}
			parallel = append(parallel, t)
		}
		if err := w.advance(ctx, i, parallel); err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether the memory suffices for the weights of n layers as large in all streams. If not, products read them from the source,
// and only those that were replaced are in memory until they have been used.
func (w *walk) holds(l *forward.Layer, n int) bool {
	_, common := l.Bytes()
	return int64(n*len(w.streams))*common <= w.weights
}

// step is a branch of the current layer in every stream.
type step struct {
	branches []*forward.Branch
	// kept is what the outputs follow from, [tokens, Width], see [forward.Branch.Add]: computing it is most of the work.
	kept []*rows
	// together: other branches read the same states and are added to them.
	together bool
	// to, if not nil, are the states of every stream that the outputs may be added to as soon as they are known; done is that they have been
	// added to those of the float stream.
	to   []*rows
	done bool
}

// name is that of an input of a step, for messages.
func (t *step) name() string {
	for _, part := range t.branches[0].Parts() {
		return (&step{branches: []*forward.Branch{part}}).name()
	}
	in := t.branches[0].Inputs()
	return in[len(in)-1][0].Weight.Tensor
}

// advance visits the inputs of parallel branches and adds their outputs to the states.
func (w *walk) advance(ctx context.Context, layer int, parallel []step) error {
	states := make([]*rows, len(w.streams))
	for k, s := range w.streams {
		states[k] = s.states
	}
	if len(parallel) == 1 {
		parallel[0].to = states
	}
	for i := range parallel {
		defer func() { w.close(parallel[i].kept) }()
		if err := w.visitStep(ctx, layer, &parallel[i]); err != nil {
			return err
		}
	}
	for i := range parallel {
		left := len(w.streams)
		if parallel[i].done {
			left = 1
		}
		if err := w.add(ctx, states, &parallel[i], 0, left); err != nil {
			return err
		}
	}
	w.drop(w.streams[0].layer.Linears())
	return nil
}

// drop gives up the weights that replaced others in the current layer, unless it is in memory.
func (w *walk) drop(list []*forward.Linear) {
	if w.holds(w.streams[0].layer, 1) {
		return
	}
	for _, l := range list {
		l.Drop()
	}
}

// add adds the outputs of a branch to rows of streams lo to hi-1.
func (w *walk) add(ctx context.Context, to []*rows, t *step, lo, hi int) error {
	return w.eachOf(ctx, lo, hi, func(k, row, n int, of forward.Windows) error {
		s, kept := w.streams[k], t.kept[k]
		s.a, s.b = grow(s.a, n*to[k].width), grow(s.b, n*kept.width)
		h, err := to[k].get(s.a, row, n)
		if err != nil {
			return err
		}
		y, err := kept.get(s.b, row, n)
		if err != nil {
			return err
		}
		if err := t.branches[k].Add(ctx, h, y, of); err != nil {
			return err
		}
		if !kernel.Finite(w.threads, h) {
			return fmt.Errorf("%s: the states after it are NaN or infinite", t.name())
		}
		return to[k].put(h, row)
	})
}

// visitStep visits the inputs of a branch and keeps what its output follows from.
func (w *walk) visitStep(ctx context.Context, layer int, t *step) (err error) {
	first := t.branches[0]
	if t.kept, err = w.newRows(w.tokens(), first.Width()); err != nil {
		return err
	}
	switch {
	case first.Mixture() != nil:
		return w.visitMixture(ctx, layer, t)
	case first.Parts() != nil:
		return w.visitSum(ctx, layer, t)
	}
	inputs := first.Inputs()
	last, left := len(inputs)-1, len(w.streams)
	// read computes the last input in streams lo to hi-1, and calls done when rows are there in all of them.
	read := func(ctx context.Context, lo, hi int, done func() error) error {
		return w.eachOf(ctx, lo, hi, func(k, row, n int, of forward.Windows) error {
			s, kept := w.streams[k], t.kept[k]
			h, err := s.read(row, n)
			if err != nil {
				return err
			}
			x := kept.place(s.input(kept, n), row, n)
			if err := cmp.Or(t.branches[k].Read(ctx, x, h, of, inputs[last][0]), kept.put(x, row)); err != nil || k < hi-1 {
				return err
			}
			return done()
		})
	}
	for i, linears := range inputs[:last] {
		in := &input{layer: layer, linears: linears}
		if i == last-1 && w.apart() {
			left = 1
			in.meanwhile = func() error { return read(forward.GiveWay(ctx), 1, 2, nothing) }
		}
		if err := w.show(ctx, in, w.reader(ctx, t, linears[0])); err != nil {
			return err
		}
	}
	in := &input{layer: layer, linears: inputs[last], added: !t.together && first.Plain() && inputs[last][0].Rows == w.streams[0].states.width}
	if t.to != nil && w.apart() {
		t.done = true
		in.meanwhile = func() error { return w.add(forward.GiveWay(ctx), t.to, t, 1, 2) }
	}
	value := func(k, row, n int, _ forward.Windows) ([]float32, error) {
		s, kept := w.streams[k], t.kept[k]
		return kept.get(s.input(kept, n), row, n)
	}
	if !w.flows(t, in) {
		if err := read(ctx, 0, left, nothing); err != nil {
			return err
		}
		w.drop(slices.Concat(inputs[:last]...)) // nothing reads them any more
		return w.show(ctx, in, value)
	}
	// Rows are shown while the next ones are computed.
	in.flowing = true
	reading, cancel := context.WithCancel(ctx)
	there := make(chan error, len(w.windows)+len(w.items)+1)
	go func() {
		defer close(there)
		there <- read(reading, 0, left, func() error {
			there <- nil
			return nil
		})
	}()
	defer func() {
		cancel()
		for range there {
		}
	}()
	return w.show(ctx, in, func(k, row, n int, of forward.Windows) ([]float32, error) {
		if k == 0 {
			if err := <-there; err != nil {
				return nil, err
			}
		}
		return value(k, row, n, of)
	})
}

func nothing() error { return nil }

// flows reports whether rows of the last input of a step may be shown while others are computed: a device computes them, and nothing but
// memory holds them.
func (w *walk) flows(t *step, in *input) bool {
	for k, s := range w.streams {
		if s.states.mem == nil || t.kept[k].mem == nil {
			return false
		}
	}
	return kernel.HasDevice() && w.overlaps() && w.wanted(in)
}

// overlaps reports whether other work may go on while inputs of the layer are visited: either leaves something idle, and the weights are in
// memory.
func (w *walk) overlaps() bool { return idles(w.threads) && w.holds(w.streams[0].layer, 1) }

// apart reports whether the float stream may go on while inputs of the layer are visited: it shares no weights with the other one.
func (w *walk) apart() bool { return len(w.streams) == 2 && w.overlaps() }

// reader returns rows of the input of a linear layer of a branch.
func (w *walk) reader(ctx context.Context, t *step, l *forward.Linear) value {
	return func(k, row, n int, of forward.Windows) ([]float32, error) {
		s := w.streams[k]
		h, err := s.read(row, n)
		if err != nil {
			return nil, err
		}
		s.b = grow(s.b, n*l.Cols)
		return s.b, t.branches[k].Read(ctx, s.b, h, of, l)
	}
}

// visitSum visits the parts of a sum and keeps their sum.
func (w *walk) visitSum(ctx context.Context, layer int, t *step) error {
	if err := clearRows(t.kept); err != nil {
		return err
	}
	for p := range t.branches[0].Parts() {
		part := step{}
		for _, b := range t.branches {
			part.branches = append(part.branches, b.Parts()[p])
		}
		err := w.visitStep(ctx, layer, &part)
		if err == nil {
			err = w.add(ctx, t.kept, &part, 0, len(w.streams))
		}
		w.close(part.kept)
		if err != nil {
			return err
		}
	}
	return nil
}

// value returns rows of an input in stream k, valid until the next call for the stream.
type value func(k, row, n int, of forward.Windows) ([]float32, error)

// show gathers the moments of an input, if they are wanted, and passes them to visit.
func (w *walk) show(ctx context.Context, in *input, value value) error {
	in.background = w.background && !w.atHead(in) && w.overlaps()
	if !w.wanted(in) {
		return w.visitInput(ctx, in, nil)
	}
	st, err := w.gather(ctx, in, value)
	if err != nil {
		return err
	}
	return w.visitInput(ctx, in, st)
}

// apartWork is how many multiplications the moments of an input take so that sharing the device, which takes memory from it for a while, costs less
// than it gains.
const apartWork = 1 << 40

// gather returns the moments of an input.
func (w *walk) gather(ctx context.Context, in *input, value value) (*quant.Stats, error) {
	cols, tally := in.linears[0].Cols, effort.TallyOf(ctx)
	if in.flowing && cols*cols*w.tokens() >= apartWork {
		defer kernel.Apart(2)()
	}
	m := newInputMoments(cols, w.cross)
	var r *residue
	if w.cross && in.added {
		r = newResidue(in.linears[0].Rows, cols)
	}
	err := w.chunks(ctx, func(c chunk) (err error) {
		x := make([][]float32, len(w.streams))
		for k := range w.streams {
			if x[k], err = value(k, c.row, c.n, c.of); err != nil {
				return err
			}
		}
		m.add(x[0][:c.n*cols], x[len(x)-1][:c.n*cols], c.length, c.skip, w.threads)
		tally.AddWork(estimate.Moments(c.n, cols, w.cross))
		if r == nil {
			return nil
		}
		var h [2][]float32
		for k, s := range w.streams {
			if h[k], err = s.read(c.row, c.n); err != nil {
				return err
			}
		}
		r.add(m, x[0][:c.n*cols], h[0], h[1], c.length, c.skip, w.threads)
		tally.AddWork(estimate.Residue(c.n, r.rows, cols))
		return nil
	})
	if err != nil {
		return nil, err
	}
	st, err := m.stats(w.threads)
	if err == nil && r != nil {
		st.Residue, err = r.mean(st.Tokens, w.threads)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in, err)
	}
	return st, nil
}

// visitInput calls visit with the weights of an input in memory, unless they are those of the head. Of weights that were not, those
// that visit leaves are packed.
func (w *walk) visitInput(ctx context.Context, in *input, st *quant.Stats) error {
	if err := w.await(); err != nil {
		return err
	}
	in.threads, in.turn = w.threads, w.turn
	visited := make(chan error, 1)
	visit := func() { visited <- w.visitAlone(ctx, in, st) }
	switch {
	case in.meanwhile != nil:
		go visit()
		err := in.meanwhile()
		return cmp.Or(<-visited, err)
	case in.background:
		w.visited = visited
		go visit()
		return nil
	}
	return w.visitAlone(ctx, in, st)
}

// await returns the error of a visit in the background when it has ended.
func (w *walk) await() error {
	if w.visited == nil {
		return nil
	}
	err := <-w.visited
	w.visited = nil
	return err
}

// visitAlone is visitInput while nothing else happens in the walk.
func (w *walk) visitAlone(ctx context.Context, in *input, st *quant.Stats) error {
	if w.atHead(in) {
		return w.visit(ctx, in, st)
	}
	var read []*forward.Linear
	for _, l := range in.linears {
		if l.InMemory() {
			continue
		}
		if err := l.Load(); err != nil {
			return err
		}
		read = append(read, l)
	}
	err := w.visit(ctx, in, st)
	for _, l := range read {
		if w.sequential {
			l.Pack()
		} else {
			l.Drop()
		}
	}
	return err
}

// atHead reports whether an input is that of the head, whose weights pass through memory in slabs.
func (w *walk) atHead(in *input) bool { return in.linears[0].Weight == w.decoder.Head.Weight }

// head visits the input of the head.
func (w *walk) head(ctx context.Context) error {
	head, err := w.model.Head()
	if err != nil {
		return err
	}
	in := &input{layer: len(w.decoder.Layers), linears: []*forward.Linear{head.Linear}}
	return w.show(ctx, in, func(k, row, n int, _ forward.Windows) ([]float32, error) {
		s := w.streams[k]
		h, err := s.read(row, n)
		if err != nil {
			return nil, err
		}
		s.b = grow(s.b, len(h))
		head.Input(s.b, h)
		return s.b, nil
	})
}
