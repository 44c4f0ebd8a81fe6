package cuda

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// recurrenceOf is a delta net, or for every third number Mamba 2, a short convolution, and a gate for each row, of random sizes, for whole windows.
// Calls with the same numbers return equal ones.
func recurrenceOf(seed uint64) *kernel.Chain {
	r := rand.New(rand.NewPCG(13, seed))
	x := &kernel.RecurrenceStep{Dst: 6, Mixed: 5, Strengths: 3, Times: 4, Rule: seed%3 > 0, KeyHeads: 1 + r.IntN(2), Key: 1 + r.IntN(48),
		Value: 1 + r.IntN(80), Eps: 1e-6, TimeMax: math.Inf(1), Together: tokensTogether}
	x.Heads = x.KeyHeads * (1 + r.IntN(3))
	if seed%4 == 3 {
		x.KeyHeads, x.Heads, x.Key, x.Value = 1, 1, 128, 128
	}
	hidden, mixed, values := 1+r.IntN(60), 2*x.KeyHeads*x.Key+x.Heads*x.Value, x.Heads*x.Value
	c := &kernel.Chain{Widths: []int{hidden, mixed, values, x.Heads, x.Heads, mixed, values, hidden, 1, 3 * hidden, hidden}}
	for range 1 + int(seed/2%3) {
		n := 1 + r.IntN(2*tokensTogether)
		if seed%2 == 0 {
			n += 2 * tokensTogether
		}
		c.Windows, c.Rows = append(c.Windows, n), c.Rows+n
	}
	draw := func(n int) []float32 { return smallOf(r, n) }
	linear := func(dst, src int) kernel.Step {
		n, k := c.Widths[dst], c.Widths[src]
		w := draw(n * k)
		kernel.Scale(w, w, float32(2/math.Sqrt(float64(k))))
		return &kernel.LinearStep{Dst: dst, Src: src, Weights: kernel.Factor{Data: w, Layout: kernel.ByRow, Stride: k, Version: kernel.NewVersion()}}
	}
	vector := func(v []float32) kernel.Factor {
		f := kernel.Vector(v)
		f.Version *= seed % 2
		return f
	}
	x.Bias, x.Decay = vector(draw(x.Heads)), vector(draw(x.Heads))
	for i, v := range x.Decay.Data {
		x.Decay.Data[i] = -float32(math.Abs(float64(v))) * []float32{.01, .3, 4}[r.IntN(3)]
	}
	if !x.Rule {
		x.Direct, x.TimeMin, x.TimeMax = vector(draw(x.Heads)), .3, 1
	}
	mixes := &kernel.ConvolveStep{Dst: 5, Src: 1, Taps: vector(draw((1 + r.IntN(5)) * mixed))}
	short := &kernel.ConvolveStep{Dst: 10, Src: 9, Taps: vector(draw((1 + r.IntN(4)) * hidden)), Gated: true, State: 2}
	if seed%4 == 1 {
		mixes.Bias, short.Bias = vector(draw(mixed)), vector(draw(hidden))
	}
	x.State = 1
	c.States, c.Out = draw(c.Rows*hidden), make([]float32, c.Rows*hidden)
	c.Steps = []kernel.Step{
		linear(1, 0), linear(2, 0), linear(3, 0), linear(4, 0), mixes, x,
		&kernel.NormStep{Dst: 6, Src: 6, Gamma: vector(draw(x.Value)), Eps: 1e-6}, &kernel.GateStep{Dst: 2, Matrix: 2, By: 6},
		&kernel.SigmoidStep{Matrix: 2, By: 6}, linear(7, 2), linear(8, 0), &kernel.SigmoidStep{Matrix: 7, By: 8}, &kernel.AddStep{Dst: 0, Src: 7},
		linear(9, 0), short, &kernel.AddStep{Dst: 0, Src: 10},
	}
	return c
}

// compareRecurrences takes windows through recurrences of both kinds.
func (e *Engine) compareRecurrences() MeasuredWork {
	m := e.measureCourse("recurrence", recurrenceOf(1), 1)
	if m.Differ == 0 {
		m = e.measureCourse("recurrence", recurrenceOf(3), 1)
	}
	return m
}

// recurrenceTokensOf is recurrenceOf for tokens of some windows, from the first one on.
func recurrenceTokensOf(seed uint64) *kernel.Chain {
	c := recurrenceOf(seed | 1) // vectors stay
	c.Windows, c.Out, c.Rows = nil, nil, 1+int(seed%3)
	c.States = slices.Clone(c.States[:c.Widths[0]])
	for len(c.States) < c.Rows*c.Widths[0] {
		c.States = append(c.States, c.States[0]+float32(len(c.States)))
	}
	c.Pasts = &kernel.Pasts{Length: 3 * tokensTogether, Version: kernel.NewVersion(), States: 3}
	return c
}

// compareRecurrenceTokens takes more tokens than are computed together through recurrences of both kinds, each after what became of the one before.
func (e *Engine) compareRecurrenceTokens(seeds ...uint64) MeasuredWork {
	m := MeasuredWork{Work: "recurrence of tokens", Card: 1}
	for _, seed := range seeds {
		got, want := recurrenceTokensOf(seed), recurrenceTokensOf(seed)
		defer e.Forget(got.Pasts)
		for range tokensTogether + 9 {
			want.Do()
			if !e.sampled(got) {
				return MeasuredWork{Differ: len(want.States)}
			}
			m.Differ += differ(got.States, want.States)
			copy(got.States, want.States)
			got.At, want.At = got.At+1, want.At+1
		}
	}
	return m
}

// measuredRecurrence is that of a delta net after its convolution, for so many values: heads of 128, two of which share keys.
func measuredRecurrence(values int, windows []int) *kernel.Chain {
	dim := max(2, min(128, values&^1))
	x := &kernel.RecurrenceStep{Dst: 4, Mixed: 3, Rule: true, Strengths: 1, Times: 2, KeyHeads: max(1, values/dim/2), Key: dim, Value: dim, Eps: 1e-6,
		TimeMax: math.Inf(1), Together: tokensTogether}
	x.Heads = x.KeyHeads * max(1, values/dim/x.KeyHeads)
	mixed := (2*x.KeyHeads + x.Heads) * dim
	c := &kernel.Chain{Widths: []int{mixed, x.Heads, x.Heads, mixed, x.Heads * dim}, Windows: windows, Result: 4}
	for _, n := range windows {
		c.Rows += n
	}
	x.Decay, x.Bias = kernel.Vector(slices.Repeat([]float32{-.1}, x.Heads)), kernel.Vector(drawn(x.Heads, 40))
	c.States, c.Out = drawn(c.Rows*mixed, 41), make([]float32, c.Rows*x.Heads*dim)
	for i := range 2 {
		c.Given = append(c.Given, kernel.Carried{Matrix: i + 1, Data: drawn(c.Rows*x.Heads, 42+uint64(i))})
	}
	c.Steps = []kernel.Step{&kernel.ConvolveStep{Dst: 3, Src: 0, Taps: kernel.Vector(drawn(4*mixed, 44))}, x}
	return c
}
