package cuda

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// mixtureOf is a mixture of random sizes after its router, for the next token of some windows, or with `whole` for all tokens of some. Calls with the
// same numbers return equal ones.
func mixtureOf(seed uint64, whole bool) *kernel.Chain {
	c, _ := drawnMixture(seed, whole)
	return c
}

// drawnMixture returns the weights of a mixture as rows, too, by version.
func drawnMixture(seed uint64, whole bool) (c *kernel.Chain, plain map[uint64][]float32) {
	r := rand.New(rand.NewPCG(11, seed))
	rows, hidden, wide, count := 1+r.IntN(40), 1+r.IntN(90), 1+r.IntN(90), 1+r.IntN(12)
	switch seed % 4 {
	case 1:
		hidden, wide = 600+r.IntN(100), 257+r.IntN(100) // several segments
	case 2:
		count = 33 + r.IntN(40)
	case 3:
		rows, hidden, count = 1+r.IntN(9), 2050+r.IntN(600), 1+r.IntN(3) // more segments than a block has warps
	}
	if seed%5 == 0 {
		rows *= 8
	}
	plain = map[uint64][]float32{}
	small := func(n int) []float32 { return smallOf(r, n) }
	matrix := func(n, k int) kernel.Factor {
		rows := small(n * k)
		w := kernel.Factor{Data: rows, Layout: kernel.ByRow, Stride: k, Version: kernel.NewVersion()}
		if seed%4 < 2 {
			w = unread(stored(rows, n, k, []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}[seed/4%3]), seed%3 == 0)
		}
		plain[w.Version] = rows
		return w
	}
	x := &kernel.ExpertsStep{Dst: 3, Src: 1, Scores: 2, Wide: wide, Routing: kernel.Routing{TopK: 1 + r.IntN(min(count, 9)),
		Scoring: kernel.Scoring(seed / 2 % 4), Normalize: r.IntN(2) == 0, Epsilon: 1e-20 * float64(r.IntN(2)), Scale: []float64{1, 2.5}[r.IntN(2)]}}
	scores := small(count * hidden)
	if count > 2 {
		copy(scores[hidden:2*hidden], scores[2*hidden:]) // ties
	}
	router := unread(stored(scores, count, hidden, tensor.F32), seed%3 == 0)
	plain[router.Version] = scores
	if r.IntN(2) == 0 {
		x.Correction = kernel.Vector(small(count))
	}
	if r.IntN(3) == 0 {
		x.Gains = kernel.Vector(small(count))
	}
	if groups := 2 + r.IntN(3); count >= 2*groups && r.IntN(2) == 0 {
		size := (count + groups - 1) / groups
		if count%groups == 0 {
			x.Routing.Groups, x.Routing.TopGroups, x.Routing.GroupTop = groups, 1+r.IntN(groups), 1+r.IntN(min(size, 3))
		}
	}
	for range count {
		x.Gate, x.Up, x.Down = append(x.Gate, matrix(wide, hidden)), append(x.Up, matrix(wide, hidden)), append(x.Down, matrix(hidden, wide))
	}
	c = &kernel.Chain{
		Rows: rows, Widths: []int{hidden, hidden, count, hidden}, States: small(rows * hidden),
		Steps: []kernel.Step{
			&kernel.NormStep{Dst: 1, Src: 0, Gamma: kernel.Vector(small(hidden)), Eps: 1e-6},
			&kernel.LinearStep{Dst: 2, Src: 1, Weights: router}, x, &kernel.AddStep{Dst: 0, Src: 3},
		},
	}
	if seed%7 == 4 { // a token whose scores are not numbers
		c.States[r.IntN(len(c.States))] = float32(math.Inf(1))
	}
	if whole {
		c.Windows, c.Result, c.Out = []int{rows}, 3, make([]float32, rows*hidden)
		return c, plain
	}
	c.Pasts = &kernel.Pasts{Length: 1, Version: kernel.NewVersion()}
	return c, plain
}

// mixtureBackOf is the way through such a mixture and back, for all tokens of a window. What lies between is taken, too.
func mixtureBackOf(seed uint64) *kernel.Chain {
	c, plain := drawnMixture(seed, true)
	b := mixtureBack(c, plain, smallOf(rand.New(rand.NewPCG(13, seed)), len(c.States)))
	taken := []int{3, b.DScores, b.DGate, b.DUp, b.Inner}
	if seed%3 > 0 {
		b.In, b.DDown = len(c.Widths), len(c.Widths)+1
		width := b.Of.Routing.TopK * c.Widths[0]
		c.Widths, taken = append(c.Widths, width, width), append(taken, b.In, b.DDown)
	}
	if seed%2 == 0 { // the last branch of a layer
		c.Steps, taken = slices.Delete(c.Steps, 2, 3), taken[1:]
	}
	for _, m := range taken {
		c.Taken = append(c.Taken, kernel.Carried{Matrix: m, Data: make([]float32, c.Rows*c.Widths[m])})
	}
	return c
}

// mixtureBack lets a mixture of whole windows end with the way back, for the gradient d of its result. plain are its weights as rows, by version.
func mixtureBack(c *kernel.Chain, plain map[uint64][]float32, d []float32) *kernel.ExpertsBackStep {
	x, router := c.Steps[2].(*kernel.ExpertsStep), c.Steps[1].(*kernel.LinearStep)
	hidden, count, wide := c.Widths[0], len(x.Gate), x.Routing.TopK*x.Wide
	turned := func(f *kernel.Factor, width int) kernel.Factor {
		t := kernel.Factor{Data: plain[f.Version], Layout: kernel.ByPosition, Stride: width, Version: kernel.NewVersion()}
		f.Turned = t.Version
		return t
	}
	b := &kernel.ExpertsBackStep{Of: x, DOut: 4, DSrc: 5, DScores: 6, DGate: 7, DUp: 8, Inner: 9, Ends: make([]int32, count)}
	for j := range x.Gate {
		b.GateBack, b.UpBack = append(b.GateBack, turned(&x.Gate[j], hidden)), append(b.UpBack, turned(&x.Up[j], hidden))
		b.DownBack = append(b.DownBack, turned(&x.Down[j], x.Wide))
	}
	c.Widths = append(c.Widths, hidden, hidden, count, wide, wide, wide, hidden)
	c.Steps = append(c.Steps[:3], b, &kernel.LinearStep{Dst: 10, Src: b.DScores, Weights: turned(&router.Weights, hidden)},
		&kernel.AddStep{Dst: b.DSrc, Src: 10})
	c.Given, c.Result = []kernel.Carried{{Matrix: b.DOut, Data: d}}, b.DSrc
	return b
}

// measureMixtureBack takes windows through mixtures and back.
func (e *Engine) measureMixtureBack(seed uint64, times int) (m MeasuredWork) {
	for i := range uint64(4) {
		other := e.measureCourse("mixture of gradients", mixtureBackOf(seed+i), times)
		if i > 0 {
			other.Card, other.Differ = min(m.Card, other.Card), m.Differ+other.Differ
		}
		m = other
	}
	return m
}

// unread makes panels some that are not in memory, on demand.
func unread(f kernel.Factor, is bool) kernel.Factor {
	if all := f.Data; is {
		f.Data, f.Read = nil, func(first, n int, use func(panels []float32) bool) bool {
			end := (first + n + kernel.PanelRows - 1) / kernel.PanelRows * kernel.PanelRows
			return use(all[first*f.Stride : end*f.Stride])
		}
	}
	return f
}

// measureMixture computes mixtures with few rows for every expert, and with many, whose weights have 32 bits and 16.
func (e *Engine) measureMixture(seed uint64, times int) (m MeasuredWork) {
	crowded := e.crowded
	defer func() { e.crowded = crowded }()
	for i := range uint64(4) {
		e.crowded = []int{math.MaxInt, 0}[i%2]
		other := e.measureCourse("mixture", mixtureOf(seed+i/2*4, i%2 == 1), times)
		if i > 0 {
			other.Card, other.Differ = min(m.Card, other.Card), m.Differ+other.Differ
		}
		m = other
	}
	return m
}

// measuredExperts is a mixture for states of so many elements, in as many experts as have room in so many bytes, 128 at most, with three eighths of their
// width. A token takes one in 16. With back it is the way through the last branch of a layer and back.
func measuredExperts(hidden, rows int, windows []int, back bool) *kernel.Chain {
	const most, bytes = 128, 5 << 29
	wide, count := max(1, 3*hidden/8), min(most, max(16, hidden/16*16))
	for count > 16 && 12*count*wide*hidden > bytes {
		count /= 2
	}
	seed, plain := uint64(30), map[uint64][]float32{}
	matrix := func(n, k int) kernel.Factor {
		seed++
		w := drawn(n*k, seed)
		kernel.Scale(w, w, float32(1/math.Sqrt(float64(k))))
		if back {
			f := kernel.Factor{Data: w, Layout: kernel.ByRow, Stride: k, Version: kernel.NewVersion()}
			plain[f.Version] = w
			return f
		}
		p := new(kernel.Packed)
		p.Pack(w, n, k, k)
		return p.Factor()
	}
	x := &kernel.ExpertsStep{Dst: 3, Src: 1, Scores: 2, Wide: wide,
		Routing: kernel.Routing{TopK: count / 16, Scoring: kernel.ScoreSoftmax, Normalize: true, Scale: 1}}
	for range count {
		x.Gate, x.Up, x.Down = append(x.Gate, matrix(wide, hidden)), append(x.Up, matrix(wide, hidden)), append(x.Down, matrix(hidden, wide))
	}
	c := &kernel.Chain{
		Rows: rows, Widths: []int{hidden, hidden, count, hidden}, States: drawn(rows*hidden, 17), Windows: windows,
		Steps: []kernel.Step{
			&kernel.NormStep{Dst: 1, Src: 0, Gamma: kernel.Vector(slices.Repeat([]float32{1}, hidden)), Eps: 1e-6},
			&kernel.LinearStep{Dst: 2, Src: 1, Weights: matrix(count, hidden)}, x, &kernel.AddStep{Dst: 0, Src: 3},
		},
	}
	if windows != nil {
		c.Out = make([]float32, rows*hidden)
		if back {
			mixtureBack(c, plain, drawn(rows*hidden, 18))
			c.Steps = slices.Delete(c.Steps, 2, 3)
		}
		return c
	}
	c.Pasts = &kernel.Pasts{Length: 1, Version: kernel.NewVersion()}
	return c
}

// measureExperts times a mixture for a token of each of 128 windows, and for all tokens of two windows, and its gradients for them; rates count the
// matrices alone.
func (e *Engine) measureExperts(hidden, tokens, times int) []MeasuredWork {
	length := max(1, tokens/2)
	return []MeasuredWork{
		e.measureCourse("experts, tokens", measuredExperts(hidden, 128, nil, false), times),
		e.measureCourse("experts, windows", measuredExperts(hidden, 2*length, []int{length, length}, false), times),
		e.measureCourse("experts, gradients", measuredExperts(hidden, 2*length, []int{length, length}, true), times),
	}
}
