package calibrate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// seen is what a visit was shown.
type seen struct {
	name    string
	layer   int
	tensors []string
	stats   *quant.Stats
}

func walked(t *testing.T, o Options, edit func(w *walk)) ([]seen, error) {
	t.Helper()
	m, err := forward.New(o.Decoder, o.Source, o.Threads)
	check(t, err)
	var all []seen
	w := o.walk(m)
	w.visit = func(_ context.Context, in *input, st *quant.Stats) error {
		s := seen{name: in.String(), layer: in.layer, stats: st}
		for _, l := range in.linears {
			s.tensors = append(s.tensors, l.Weight.Tensor)
		}
		all = append(all, s)
		return nil
	}
	edit(w)
	before := w.room.left
	err = w.run(t.Context())
	if w.room.left != before {
		t.Errorf("%d bytes of room, had %d", w.room.left, before)
	}
	noActivations(t, o.Dir)
	return all, err
}

// direct computes the moments of all inputs window by window, each input by a pass of its own.
func direct(t *testing.T, o Options) []seen {
	t.Helper()
	m, err := forward.New(o.Decoder, o.Source, 1)
	check(t, err)
	e, err := m.Embedding()
	check(t, err)
	head, err := m.LoadHead()
	check(t, err)
	g := &gatherer{t: t, Options: o}
	length := len(o.Windows[0])
	one := forward.Equal(1, length)
	for i, window := range o.Windows {
		g.at, g.first = 0, i == 0
		h, err := e.States(t.Context(), [][]int32{window})
		check(t, err)
		for k := range o.Decoder.Layers {
			l, err := m.LoadLayer(k)
			check(t, err)
			after := slices.Clone(h)
			check(t, l.Forward(t.Context(), after, one))
			g.layer = k
			branches := l.Branches()
			for b := 0; b < len(branches); {
				before := slices.Clone(h)
				for first := b; b == first || b < len(branches) && branches[b].Parallel(); b++ {
					check(t, branches[b].Add(t.Context(), h, g.branch(branches[b], before), one))
				}
			}
			if !slices.Equal(h, after) {
				t.Fatalf("layer %d: its steps are not its forward pass", k)
			}
		}
		h = head.Input(h, h)
		g.layer = len(o.Decoder.Layers)
		g.add(h, head.Linear)
	}
	return g.finish()
}

// gatherer collects the rows of every input.
type gatherer struct {
	Options
	t     *testing.T
	first bool // window
	at    int
	layer int
	all   []seen
	rows  [][]float32
	whole []bool // there is a row for every token
}

// add adds the rows of the next input for a window: those of all tokens without the skipped ones, or those of an expert.
func (g *gatherer) add(x []float32, linears ...*forward.Linear) {
	g.next(linears...)
	g.whole[g.at-1] = true
	g.rows[g.at-1] = append(g.rows[g.at-1], x[g.Skip*linears[0].Cols:]...)
}

func (g *gatherer) next(linears ...*forward.Linear) {
	if g.first {
		s := seen{name: linears[0].Weight.Tensor, layer: g.layer, stats: &quant.Stats{Cols: linears[0].Cols}}
		for _, l := range linears {
			s.tensors = append(s.tensors, l.Weight.Tensor)
		}
		g.all, g.rows, g.whole = append(g.all, s), append(g.rows, nil), append(g.whole, false)
	}
	g.at++
}

// branch returns what the output of a branch follows from.
func (g *gatherer) branch(b *forward.Branch, h []float32) (y []float32) {
	length := len(g.Windows[0])
	one := forward.Equal(1, length)
	read := func(linears ...*forward.Linear) []float32 {
		x := make([]float32, length*linears[0].Cols)
		check(g.t, b.Read(g.t.Context(), x, h, one, linears[0]))
		return x
	}
	if parts := b.Parts(); parts != nil {
		y = make([]float32, len(h))
		for _, p := range parts {
			check(g.t, p.Add(g.t.Context(), y, g.branch(p, h), one))
		}
		return y
	}
	m := b.Mixture()
	if m == nil {
		for _, in := range b.Inputs() {
			y = read(in...)
			g.add(y, in...)
		}
		return y
	}
	g.add(read(m.Router()), m.Router())
	return g.mixture(m, h)
}

// mixture adds the inputs of experts, token by token.
func (g *gatherer) mixture(m *forward.Mixture, h []float32) []float32 {
	ctx, width, length := g.t.Context(), g.Decoder.Hidden, len(g.Windows[0])
	chosen, weights := make([]int32, length*m.TopK()), make([]float32, length*m.TopK())
	check(g.t, m.Route(ctx, chosen, weights, h))
	y, x := make([]float32, len(h)), make([]float32, len(h))
	check(g.t, m.Input(ctx, x, h))
	run := func(e *forward.Expert, weigh func(token int) (float32, bool)) {
		in := e.Inputs()
		g.next(in[0]...)
		g.next(in[1]...)
		for token := range length {
			row, out := slices.Clone(x[token*width:(token+1)*width]), make([]float32, width)
			f, ok := float32(1), true
			if weigh != nil {
				f, ok = weigh(token)
			}
			if !ok {
				continue
			}
			if m.ScaleInput() {
				for i := range row {
					row[i] *= f
				}
				f = 1
			}
			inner := make([]float32, in[1][0].Cols)
			check(g.t, e.Inner(ctx, inner, row))
			check(g.t, e.Output(ctx, out, inner))
			if weigh == nil {
				check(g.t, e.Gate(ctx, out, row))
			}
			for i, v := range out {
				y[token*width+i] += float32(v * f)
			}
			if token >= g.Skip {
				g.rows[g.at-2] = append(g.rows[g.at-2], row...)
				g.rows[g.at-1] = append(g.rows[g.at-1], inner...)
			}
		}
	}
	for j := range m.Experts() {
		e, err := m.Load(j)
		check(g.t, err)
		run(e, func(token int) (float32, bool) {
			i := slices.Index(chosen[token*m.TopK():(token+1)*m.TopK()], int32(j))
			if i < 0 {
				return 0, false
			}
			return weights[token*m.TopK()+i], true
		})
	}
	if e := m.Shared(); e != nil {
		run(e, nil)
	}
	return y
}

// finish computes the moments.
func (g *gatherer) finish() []seen {
	for i, x := range g.rows {
		cols := g.all[i].stats.Cols
		sum, step := newMoments(cols, false), chunkTokens
		if g.whole[i] {
			step = len(g.Windows[0]) - g.Skip
		}
		for n := len(x) / cols; n > 0; n = len(x) / cols {
			n = min(n, step)
			sum.add(x[:n*cols], nil, n, 0, 1)
			x = x[n*cols:]
		}
		var err error
		g.all[i].stats, err = sum.stats(1)
		check(g.t, err)
	}
	return g.all
}

func unlike(a, b []seen) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(seen{}), cmp.Comparer(func(x, y *quant.Stats) bool {
		return x.Cols == y.Cols && x.Tokens == y.Tokens && slices.Equal(x.Hessian, y.Hessian)
	}))
}

// Whatever the streams, the threads and the memory: every input in its order, with the bits that the forward pass has for
// single windows. 40 windows of 64 tokens are two chunks.
func TestWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	for _, name := range []string{
		"llama-bias", "qwen3-untied", "qwen3_5_moe_text", "deepseek_v2", "gemma4_text-edge", "gemma4_text-moe", "falcon_h1", "llama4_text",
	} {
		t.Run(name, func(t *testing.T) {
			d, src := openCheckpoint(t, familyDir(name))
			o := Options{Decoder: d, Source: src, Windows: randomText(d, 40, 64), Skip: 3}
			want := direct(t, o)
			for _, c := range []struct {
				threads           int
				memory            int64
				sequential, cross bool
				chunk             int
			}{{1, plenty, false, false, chunkTokens}, {2, 1, false, false, chunkTokens}, {7, plenty, true, false, chunkTokens}, {2, 1, true, false, chunkTokens},
				{2, plenty, true, true, chunkTokens}, {1, 1, true, true, chunkTokens}, {2, 6 << 20, true, true, chunkTokens},
				{2, plenty, true, true, deviceChunk}} {
				o.Threads, o.Memory, o.Dir = c.threads, c.memory, t.TempDir()
				got, err := walked(t, o, func(w *walk) { w.sequential, w.cross, w.chunk = c.sequential, c.cross, c.chunk })
				check(t, err)
				if diff := unlike(want, got); diff != "" {
					t.Errorf("%+v (-want +got):\n%s", c, diff)
				}
				for _, s := range got {
					if (s.stats.Cross != nil) != c.cross {
						t.Fatalf("%+v: %s: cross moments of %d", c, s.name, len(s.stats.Cross))
					}
					for i, v := range s.stats.Cross {
						if h := s.stats.Hessian[i]; v-h > 1e-4*(1+max(h, -h)) || h-v > 1e-4*(1+max(h, -h)) {
							t.Fatalf("%+v: %s: cross moment %g, hessian %g", c, s.name, v, h)
						}
					}
				}
			}
		})
	}
}

// More tokens are in memory at a time where a device waits for them, and they have room.
func TestChunkOf(t *testing.T) {
	d, src := openCheckpoint(t, tinyDir)
	o := Options{Decoder: d, Source: src, Memory: 1 << 40}
	if got := o.chunkOf(); got != chunkTokens {
		t.Errorf("%d tokens without a device", got)
	}
	device := someProducts(0)
	kernel.SetDevice(&device)
	defer kernel.SetDevice(nil)
	if got := o.chunkOf(); got != deviceChunk {
		t.Errorf("%d tokens with a device", got)
	}
	o.Memory = 1
	if got := o.chunkOf(); got != chunkTokens {
		t.Errorf("%d tokens without memory", got)
	}
}

// Weights that a visit puts in place are seen by the inputs behind them, and by the quantized stream only.
func TestWalkShowsReplacedWeights(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	o := Options{Decoder: d, Source: src, Windows: randomText(d, 4, 32), Threads: 2, Memory: plenty, Dir: t.TempDir()}
	down := pairOf(d, 1).MLP.Down.Weight
	half := edited(t, src, down, func(x []float32) {
		for i := range x {
			x[i] /= 2
		}
	})
	changed := o
	changed.Source = half
	float, want := direct(t, o), direct(t, changed)
	for _, cross := range []bool{false, true} {
		var got []seen
		_, err := walked(t, o, func(w *walk) {
			w.sequential, w.cross = true, cross
			w.visit = func(_ context.Context, in *input, st *quant.Stats) error {
				got = append(got, seen{stats: st})
				if in.linears[0].Weight.Tensor == down.Tensor {
					in.linears[0].Set(floats(t, half, down))
				}
				return nil
			}
		})
		check(t, err)
		for i := range got {
			if !slices.Equal(got[i].stats.Hessian, want[i].stats.Hessian) {
				t.Errorf("%s: not what the changed model computes", want[i].name)
			}
			if behind := want[i].layer > 1; behind == slices.Equal(got[i].stats.Hessian, float[i].stats.Hessian) {
				t.Errorf("%s: the change is seen: %v", want[i].name, behind)
			}
		}
	}
}

// Inputs that nobody wants are shown without statistics.
func TestWalkUnwanted(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	o := Options{Decoder: d, Source: src, Windows: randomText(d, 2, 16), Threads: 1, Memory: plenty, Dir: t.TempDir()}
	got, err := walked(t, o, func(w *walk) { w.wanted = func(in *input) bool { return in.layer == 1 } })
	check(t, err)
	for _, s := range got {
		if (s.stats != nil) != (s.layer == 1) {
			t.Errorf("%s: statistics %v", s.name, s.stats != nil)
		}
	}
}

func TestWalkFails(t *testing.T) {
	d, base := openCheckpoint(t, familyDir("llama"))
	lost := errors.New("lost")
	times := func(f float32) func(x []float32) {
		return func(x []float32) {
			for i := range x {
				x[i] *= f
			}
		}
	}
	overflowing := edited(t, edited(t, base, pairOf(d, 2).MLP.Up.Weight, times(1e10)), pairOf(d, 2).MLP.Down.Weight, times(1e37))
	for _, c := range []struct {
		name string
		src  tensor.Source
		text string
	}{
		{"NaN", &poisoned{base, pairOf(d, 1).Attention.V.Weight.Tensor, bf16NaN}, pairOf(d, 1).Attention.V.Weight.Tensor},
		{"too large", &poisoned{base, pairOf(d, 0).MLP.Up.Weight.Tensor, bf16Large}, pairOf(d, 0).MLP.Down.Weight.Tensor + ": "},
		{"states", overflowing, pairOf(d, 2).MLP.Down.Weight.Tensor + ": the states after it"},
		{"a visit", base, "lost"},
		{"cancelled", base, "lost"},
	} {
		for _, memory := range []int64{1, plenty} {
			o := Options{Decoder: d, Source: c.src, Windows: randomText(d, 3, 16), Threads: 2, Memory: memory, Dir: t.TempDir()}
			_, err := walked(t, o, func(w *walk) {
				visit := w.visit
				w.sequential, w.cross = true, true
				w.visit = func(ctx context.Context, in *input, st *quant.Stats) error {
					if c.name == "a visit" && in.layer == 1 && strings.Contains(in.String(), "o_proj") {
						return lost
					}
					return visit(ctx, in, st)
				}
			})
			if c.name == "cancelled" {
				err = cancelledWalk(t, o, lost)
			}
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s, %d bytes: %v", c.name, memory, err)
			}
		}
	}
}

// Where the second stream finds neither memory nor a directory, the room of the first one is given back.
func TestWalkWithoutDirectory(t *testing.T) {
	d, src := openCheckpoint(t, familyDir("llama"))
	o := Options{Decoder: d, Source: src, Windows: randomText(d, 2, 16), Threads: 1, Dir: filepath.Join(t.TempDir(), "absent")}
	stream := int64(4 * 2 * 16 * d.Hidden)
	for _, streams := range []int64{0, 1, 2, 3} { // the third one would be the input of o
		o.Memory = streams * stream * memoryShare
		_, err := walked(t, o, func(w *walk) { w.sequential, w.cross = true, true })
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("memory for %d streams: %v", streams, err)
		}
	}
}

// cancelledWalk cancels a walk at an input.
func cancelledWalk(t *testing.T, o Options, cause error) error {
	m, err := forward.New(o.Decoder, o.Source, o.Threads)
	check(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	w := o.walk(m)
	w.visit = func(_ context.Context, in *input, _ *quant.Stats) error {
		if in.layer == 1 && strings.Contains(in.String(), "gate_proj") {
			cancel(cause)
		} else if ctx.Err() != nil {
			t.Errorf("%s was shown after the walk was cancelled", in)
		}
		return nil
	}
	before := w.room.left
	err = w.run(ctx)
	if w.room.left != before {
		t.Errorf("%d bytes of room, had %d", w.room.left, before)
	}
	noActivations(t, o.Dir)
	return err
}
