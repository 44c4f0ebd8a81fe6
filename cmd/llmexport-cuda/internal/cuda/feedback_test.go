package cuda

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// randomFeedback returns rows to be rounded. Some blocks are constant, have no importance or no grid of halves.
func randomFeedback(r *rand.Rand) *kernel.Feedback {
	block := []int{8, 20, 32, 48, 64, 96, 128}[r.IntN(7)]
	f := &kernel.Feedback{Rows: 1 + r.IntN(40), Block: block, Candidates: 1 + r.IntN(mostCandidates), Bits: 2 + r.IntN(7), Half: r.IntN(2) == 0}
	blocks := 1 + r.IntN(400/block)
	f.Cols = block * blocks
	n := f.Cols
	m := floats(r, n*n, false)
	for i := range n {
		m[i*n+i] = 1 + r.Float32()
		for j := range i {
			m[i*n+j] = float32(0.1 * r.NormFloat64())
		}
	}
	f.Factor = kernel.Factor{Data: m, Layout: kernel.ByPosition, Stride: n, Version: uint64(r.IntN(2)) * kernel.NewVersion()}
	f.Work, f.Codes, f.Importance = floats(r, f.Rows*n, false), make([]float32, f.Rows*n), floats(r, n, false)
	for i, v := range f.Importance {
		f.Importance[i] = float32(math.Abs(float64(v)))
	}
	for at := range blocks {
		of := r.Perm(blocks)[0]
		x := f.Work[of*block : (of+1)*block]
		switch r.IntN(8) {
		case 0:
			clear(f.Importance[at*block : (at+1)*block])
		case 1:
			for i := range x {
				x[i] = []float32{0, float32(math.Copysign(0, -1)), 1.5}[at%3]
			}
		case 2:
			kernel.Scale(x, x, []float32{1e-30, 1e-8, 1e5, 1e30}[at%4])
		}
	}
	order := r.Perm(blocks)
	for _, b := range order {
		for _, c := range r.Perm(block) {
			f.Order = append(f.Order, b*block+c)
		}
	}
	f.Scale = make([]float32, f.Rows*blocks)
	for i := range f.Scale {
		f.Scale[i] = 0.25
	}
	if r.IntN(3) > 0 {
		f.Zero = make([]float32, f.Rows*blocks)
	}
	return f
}

// cloneFeedback copies what a feedback changes.
func cloneFeedback(f *kernel.Feedback) *kernel.Feedback {
	c := *f
	c.Work, c.Codes, c.Scale, c.Zero = slices.Clone(f.Work), slices.Clone(f.Codes), slices.Clone(f.Scale), slices.Clone(f.Zero)
	return &c
}

// TestFeedback compares grids and codes of the feedback of gptq with those of the CPU, bit by bit.
func TestFeedback(t *testing.T) {
	e := engine(t)
	outgrown := 0
	for s := range *shapes {
		f := randomFeedback(rand.New(rand.NewPCG(13, uint64(s))))
		got, want := cloneFeedback(f), cloneFeedback(f)
		finite := quant.Feed(want)
		if e.Compute(got) != finite || e.Err() != nil {
			t.Fatalf("shape %d: computed where the CPU says %v, or %v", s, finite, e.Err())
		}
		if !finite {
			outgrown++
			want = f
		}
		if c, a, z := differ(got.Codes, want.Codes), differ(got.Scale, want.Scale), differ(got.Zero, want.Zero); c+a+z > 0 {
			t.Fatalf("shape %d, %d x %d, blocks of %d, %d bits: %d codes, %d scales and %d zero terms differ", s, f.Rows, f.Cols, f.Block, f.Bits, c, a, z)
		}
	}
	if outgrown > *shapes/2 {
		t.Errorf("%d of %d outgrew float32", outgrown, *shapes)
	}
}

// randomFeedbacks returns feedbacks of the same columns, most of which share a factor. The kernel cannot do all, and some outgrow float32.
func randomFeedbacks(r *rand.Rand) *kernel.Feedbacks {
	first := randomFeedback(r)
	first.Factor.Version = kernel.NewVersion()
	w := &kernel.Feedbacks{Of: []*kernel.Feedback{first}}
	for range 2 + r.IntN(4) {
		f := *first
		f.Rows, f.Bits, f.Candidates, f.Half = 1+r.IntN(20), 2+r.IntN(7), 1+r.IntN(12), r.IntN(2) == 0
		f.Work, f.Codes, f.Scale, f.Zero = floats(r, f.Rows*f.Cols, false), make([]float32, f.Rows*f.Cols), make([]float32, f.Rows*f.Cols/f.Block), nil
		for i := range f.Scale {
			f.Scale[i] = 0.25
		}
		if r.IntN(2) == 0 {
			f.Zero = make([]float32, len(f.Scale))
		}
		switch r.IntN(6) {
		case 0:
			f.Factor.Version = 0
		case 1:
			f.Candidates = mostCandidates + 1
		case 2:
			kernel.Scale(f.Work, f.Work, 1e30)
			f.Work[0] = 3e38
		}
		w.Of = append(w.Of, &f)
	}
	w.Left = make([]bool, len(w.Of))
	return w
}

// cloneFeedbacks copies what feedbacks change.
func cloneFeedbacks(w *kernel.Feedbacks) *kernel.Feedbacks {
	c := &kernel.Feedbacks{Left: make([]bool, len(w.Of))}
	for _, f := range w.Of {
		c.Of = append(c.Of, cloneFeedback(f))
	}
	return c
}

// differing is how many numbers of two feedbacks differ.
func differing(a, b *kernel.Feedback) int {
	return differ(a.Codes, b.Codes) + differ(a.Scale, b.Scale) + differ(a.Zero, b.Zero)
}

// sameFeedbacks reports whether codes and grids are the same.
func sameFeedbacks(a, b *kernel.Feedbacks) bool {
	n := 0
	for i, f := range a.Of {
		n += differing(f, b.Of[i])
	}
	return n == 0
}

// checkFeedbacks compares feedbacks that a device did with those of the CPU, bit by bit, and returns how many it left.
func checkFeedbacks(t *testing.T, d kernel.Device, w *kernel.Feedbacks) (left int) {
	t.Helper()
	got, want := cloneFeedbacks(w), cloneFeedbacks(w)
	if !d.Compute(got) {
		t.Fatal("feedbacks were not computed")
	}
	for i, f := range want.Of {
		leave := f.Block > longestBlock || f.Candidates > mostCandidates || !quant.Feed(f)
		if got.Left[i] != leave {
			t.Fatalf("feedback %d of %d: left %v, want %v", i, len(want.Of), got.Left[i], leave)
		}
		if leave {
			left++
			f = w.Of[i]
		}
		if n := differing(got.Of[i], f); n > 0 {
			t.Fatalf("feedback %d of %d, %d x %d, blocks of %d, left %v: %d numbers differ", i, len(want.Of), f.Rows, f.Cols, f.Block, leave, n)
		}
	}
	return left
}

// TestFeedbacks compares feedbacks at the same time with those of the CPU, bit by bit, and where the card has memory for only one of them.
func TestFeedbacks(t *testing.T) {
	e := engine(t)
	done, left := 0, 0
	for s := range *shapes {
		w := randomFeedbacks(rand.New(rand.NewPCG(31, uint64(s))))
		e := e
		if s%3 == 2 {
			e = engine(t)
			e.limit = 0
			for _, f := range w.Of {
				var l layout
				l.layFeedback(f)
				e.limit = max(e.limit, sizeOf(uint64(l))+2*sizeOf(bytesOf(f.Factor, f.Cols, f.Cols)))
			}
		}
		n := checkFeedbacks(t, e, w)
		left, done = left+n, done+len(w.Of)-n
		if e.Err() != nil {
			t.Fatal(e.Err())
		}
	}
	t.Logf("%d feedbacks, and %d are left", done, left)
	if done < 2**shapes || left == 0 {
		t.Errorf("%d feedbacks were done, %d were left", done, left)
	}
}

// TestFeedbacksSend: feedbacks of rows in several ways send their factor once.
func TestFeedbacksSend(t *testing.T) {
	e := engine(t)
	w := randomFeedbacks(rand.New(rand.NewPCG(32, 1)))
	w.Of = w.Of[:1]
	f := w.Of[0]
	want := 4 * int64(f.Cols) * int64((f.Cols+3)&^3)
	for range 5 {
		w.Of = append(w.Of, cloneFeedback(f))
	}
	w.Left = make([]bool, len(w.Of))
	for range 2 {
		for _, f := range w.Of {
			want += 4 * int64(len(f.Work)+len(f.Importance)+len(f.Order)+len(f.Scale)+len(f.Zero)+1)
		}
		checkFeedbacks(t, e, w)
	}
	if got := e.Spent(); got.Sent != want || got.Products != 2 {
		t.Errorf("%d bytes were sent for %d pieces of work, want %d for 2", got.Sent, got.Products, want)
	}
}

// TestMatricesSend: the Hessian goes to the card once, and the factor of gptq once for each layout, whatever is done with them.
func TestMatricesSend(t *testing.T) {
	const rows, cols = 24, 256
	e := engine(t)
	kernel.SetDevice(e)
	defer kernel.SetDevice(nil)
	st := &quant.Stats{Cols: cols, Tokens: 1, Hessian: definite(cols), Version: kernel.NewVersion()}
	var encoders []quant.Encoder
	var blocks []quant.Blocks
	q := quant.NewGPTQ().Quick()
	for _, bits := range []int{3, 4, 5} {
		s := quant.Spec{Bits: bits, Block: 64, Scale: tensor.F32}
		like := quant.Encoder(nil)
		if len(encoders) > 0 {
			like = encoders[0]
		}
		x, err := q.(*quant.GPTQ).PrepareLike(like, s, cols, st, 1)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Layout(rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		encoders, blocks = append(encoders, x), append(blocks, quant.NewBlocks(l, s))
	}
	w := quant.Matrix{Rows: rows, Cols: cols, Data: drawn(rows*cols, 4)}
	const matrix, some = 4 * cols * cols, 4 * rows * cols
	const feedbacks = 3 * (some + 4*(2*cols+2*rows*cols/64+1))
	for _, c := range []struct {
		what   string
		want   int64
		during func()
	}{
		{"feedbacks", feedbacks, // their factor was made there
			func() { quant.EncodeEach(encoders, blocks, w, 1) }},
		{"feedbacks again", feedbacks, func() { quant.EncodeEach(encoders, blocks, w, 1) }},
		{"an aim", matrix + 2*some, func() { encoders[0].(quant.Aimer).Aim(w, drawn(rows*cols, 5), 1) }},
		{"an aim by another encoder", 2 * some, func() { encoders[1].(quant.Aimer).Aim(w, drawn(rows*cols, 5), 1) }},
		{"a product", matrix + some, func() { e.Compute(productOf(w, st)) }},
		{"a product again", some, func() { e.Compute(productOf(w, st)) }},
	} {
		before := e.Spent().Sent
		c.during()
		if got := e.Spent().Sent - before; got != c.want || e.Err() != nil {
			t.Errorf("%s: %d bytes were sent, want %d; %v", c.what, got, c.want, e.Err())
		}
	}
	for i, x := range encoders {
		want := blocks[i]
		want.Codes, want.Scale, want.Zero = make([]uint8, len(want.Codes)), make([]float32, len(want.Scale)), make([]float32, len(want.Zero))
		if err := x.Encode(want, w); err != nil || !reflect.DeepEqual(blocks[i], want) {
			t.Errorf("encoder %d: %v, or other codes or scales", i, err)
		}
	}
}

// productOf multiplies rows by a Hessian.
func productOf(w quant.Matrix, st *quant.Stats) *kernel.Product {
	return &kernel.Product{Dst: make([]float32, len(w.Data)), Rows: w.Rows, Cols: w.Cols, Stride: w.Cols, Parts: []kernel.Part{{
		A: kernel.Factor{Data: w.Data, Layout: kernel.ByRow, Stride: w.Cols}, B: st.Factor(), K: w.Cols,
	}}}
}

// TestFeedbacksFail leaves codes and grids as they were where memory does not suffice, and where any call of the driver fails.
func TestFeedbacksFail(t *testing.T) {
	w := randomFeedbacks(rand.New(rand.NewPCG(33, 2)))
	w.Of, w.Left = w.Of[:3], w.Left[:3]
	for i, f := range w.Of { // two at the same time, and one with a factor of its own
		f.Candidates, f.Factor.Version = 2, uint64(1-i/2)*w.Of[0].Factor.Version
	}
	got := cloneFeedbacks(w)
	failsWhole(t, "feedbacks", func(e *Engine) bool { return e.Compute(got) }, func() bool { return sameFeedbacks(got, w) })
}

// TestFeedbacksGroup shares feedbacks out among two cards, and if one does not do its part, what changes is as before.
func TestFeedbacksGroup(t *testing.T) {
	cards := []*Engine{engine(t), engine(t)}
	g := NewGroup(cards)
	for s := range *shapes {
		checkFeedbacks(t, g, randomFeedbacks(rand.New(rand.NewPCG(34, uint64(s)))))
	}
	if cards[0].Spent().Products == 0 || cards[1].Spent().Products == 0 {
		t.Error("one card did all")
	}
	w := randomFeedbacks(rand.New(rand.NewPCG(34, 0)))
	got := cloneFeedbacks(w)
	if failAt(cards[1], 0, func() bool { return g.Compute(got) }) || !sameFeedbacks(got, w) {
		t.Error("a card failed, and something changed")
	}
}
