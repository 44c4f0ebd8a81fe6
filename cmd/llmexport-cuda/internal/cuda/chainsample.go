package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// chainOf is a layer of attention and one of an MLP, of random sizes, over pasts of pastTokens tokens. Calls with the same numbers return equal ones.
func chainOf(seed uint64, pastTokens, tokens int) *kernel.Chain {
	r := rand.New(rand.NewPCG(9, seed))
	rows, kv, shared, dim := 1+r.IntN(40), 1+r.IntN(3), 1+r.IntN(3), 2*(1+r.IntN(48))
	hidden, wide, length := 1+r.IntN(90), 1+r.IntN(600), pastTokens+tokens
	rows += int(seed%2) * 64 // tiles have as many rows, or twice as many
	window, heads, bias := 0, kv*shared, seed%3 == 1
	if seed%2 == 1 {
		window = 1 + r.IntN(90)
	}
	small := func(n int) []float32 { return smallOf(r, n) }
	kinds := 0
	linear := func(dst, src, n, k int) kernel.Step {
		w := kernel.Factor{Data: small(n * k), Layout: kernel.ByRow, Stride: k, Version: kernel.NewVersion()}
		if seed%4 < 2 {
			kinds++
			w = stored(w.Data, n, k, []tensor.DType{tensor.BF16, tensor.F16, tensor.F32}[(int(seed)+kinds/2)%3])
		}
		l := &kernel.LinearStep{Dst: dst, Src: src, Weights: w}
		if bias {
			l.Bias = kernel.Vector(small(n))
		}
		return l
	}
	turned := 2 * (1 + r.IntN(dim/2))
	cos, sin := kernel.Vector(small(length*turned)), kernel.Vector(small(length*turned))
	c := &kernel.Chain{
		Rows: rows, At: pastTokens, Widths: []int{hidden, hidden, heads * dim, kv * dim, kv * dim, wide, wide, hidden}, States: small(rows * hidden),
		Steps: []kernel.Step{
			&kernel.NormStep{Dst: 1, Src: 0, Gamma: kernel.Vector(small(hidden)), Eps: 1e-6},
			linear(2, 1, heads*dim, hidden), linear(3, 1, kv*dim, hidden), linear(4, 1, kv*dim, hidden),
			&kernel.NormStep{Dst: 2, Src: 2, Gamma: kernel.Vector(small(dim)), Eps: 1e-5},
			&kernel.RotateStep{Matrix: 2, Heads: heads, Dim: dim, Turned: turned, Cos: cos, Sin: sin},
			&kernel.RotateStep{Matrix: 3, Heads: kv, Dim: dim, Turned: turned, Cos: cos, Sin: sin},
			&kernel.AttendStep{Dst: 2, Queries: 2, Keys: 3, Values: 4, Heads: heads, Scale: .3, Span: spanOf(window, 64)},
			linear(7, 2, hidden, heads*dim), &kernel.AddStep{Dst: 0, Src: 7},
			&kernel.NormStep{Dst: 1, Src: 0, Gamma: kernel.Vector(small(hidden)), Eps: 1e-6},
			linear(5, 1, wide, hidden), linear(6, 1, wide, hidden), &kernel.GateStep{Dst: 5, Matrix: 5, By: 6},
			linear(7, 5, hidden, wide), &kernel.AddStep{Dst: 0, Src: 7},
		},
	}
	var keys, vals []kernel.Packed
	c.Pasts, keys, vals = pastsOf(rows, kv, dim, length)
	c.Pasts.Filled = pastTokens
	for i := range keys {
		for at := range pastTokens {
			keys[i].SetRow(at, small(dim))
			vals[i].SetColumn(at, small(dim))
		}
	}
	return c
}

// smallOf returns values with denormals.
func smallOf(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()*2 - 1
		if r.IntN(40) == 0 {
			x[i] *= 1e-39
		}
	}
	return x
}

// spanOf is the span of an attention step of causal attention within so many tokens, or 0.
func spanOf(window, together int) func(at int) (from, first int) {
	return func(at int) (from, first int) {
		if window > 0 {
			first = max(0, at-window+1)
			from = max(0, at/together*together-window+1) / kernel.PanelRows * kernel.PanelRows
		}
		return from, first
	}
}

// stored are weights [n, k] as a checkpoint of that type has them.
func stored(w []float32, n, k int, t tensor.DType) kernel.Factor {
	for i, v := range w {
		switch t {
		case tensor.BF16:
			w[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
		case tensor.F16:
			w[i] = kernel.RoundF16(v)
		}
	}
	p := new(kernel.Packed)
	p.Pack(w, n, k, k)
	f := p.Factor()
	f.Stored = t
	return f
}

// pastsOf is room for the keys and values of so many tokens of one attention, by window and key head.
func pastsOf(windows, kv, dim, length int) (p *kernel.Pasts, keys, vals []kernel.Packed) {
	keys, vals = make([]kernel.Packed, windows*kv), make([]kernel.Packed, windows*kv)
	for i := range keys {
		keys[i].Resize(length, dim)
		vals[i].Resize(dim, length)
	}
	return &kernel.Pasts{Length: length, Version: kernel.NewVersion(), Of: []kernel.Past{{Heads: kv, Key: dim, Value: dim,
		Of: func(window, head int) (*kernel.Packed, *kernel.Packed) {
			return &keys[window*kv+head], &vals[window*kv+head]
		}}}}, keys, vals
}

// measureCourse measures a chain of tokens, which the card forgets then, or of whole windows.
func (e *Engine) measureCourse(name string, c *kernel.Chain, times int) MeasuredWork {
	if c.Windows == nil {
		defer e.Forget(c.Pasts)
	}
	return e.measureWork(name, Shape{c.Rows, c.Widths[0]}, func() kernel.Work {
		w := *c
		w.States, w.Out, w.Taken = slices.Clone(c.States), make([]float32, len(c.Out)), slices.Clone(c.Taken)
		for i := range w.Taken {
			w.Taken[i].Data = make([]float32, len(c.Taken[i].Data))
		}
		w.Steps = slices.Clone(c.Steps)
		for i, step := range w.Steps {
			switch x := step.(type) {
			case *kernel.NormBackStep:
				clone := *x
				clone.Sums = slices.Clone(x.Sums)
				w.Steps[i] = &clone
			case *kernel.ExpertsBackStep:
				clone := *x
				clone.Ends = make([]int32, len(x.Ends))
				w.Steps[i] = &clone
			}
		}
		w.Moments = slices.Clone(c.Moments)
		for i := range w.Moments {
			w.Moments[i].Dst = slices.Clone(c.Moments[i].Dst)
		}
		return &w
	}, func(w kernel.Work) { w.(*kernel.Chain).Do() }, func(w kernel.Work) []float32 {
		if c := w.(*kernel.Chain); c.Windows != nil {
			return e.resultsOf(c)
		}
		return w.(*kernel.Chain).States
	}, times)
}

// measureChain takes three tokens of several windows through two layers.
func (e *Engine) measureChain(seed uint64, times int) MeasuredWork {
	const past, tokens = 300, 3
	c := chainOf(seed, past, tokens)
	for range tokens - 1 {
		c.Do()
		c.At++
	}
	c.Pasts.Filled = c.At
	return e.measureCourse("chain", c, times)
}

// wholeOf is [chainOf] for all tokens of some windows.
func wholeOf(seed uint64) *kernel.Chain {
	r := rand.New(rand.NewPCG(10, seed))
	longest := 1 + r.IntN(150)
	if seed%4 == 2 {
		longest = 300 + r.IntN(300) // more than a segment
	}
	c := chainOf(seed, 0, longest)
	c.Pasts, c.Windows, c.Rows = nil, []int{longest}, longest
	for len(c.Windows) < 1+int(seed%3) {
		n := 1 + r.IntN(min(longest, 150))
		c.Windows, c.Rows = append(c.Windows, n), c.Rows+n
	}
	c.States = make([]float32, c.Rows*c.Widths[0])
	for i := range c.States {
		c.States[i] = r.Float32()*2 - 1
	}
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.AttendStep:
			x.Together = 64
		case *kernel.NormStep:
			if seed%2 == 0 {
				x.Gamma.Version = 0
			}
		case *kernel.RotateStep:
			if seed%2 == 0 {
				x.Cos.Version, x.Sin.Version = 0, 0
			}
		}
	}
	c.Result = []int{0, 2, 5, 7}[r.IntN(4)]
	c.Out = make([]float32, c.Rows*c.Widths[c.Result])
	return c
}

// measureWindows takes windows through two layers.
func (e *Engine) measureWindows(seed uint64, times int) MeasuredWork {
	return e.measureCourse("chain of whole windows", wholeOf(seed), times)
}

// resultsOf are all results of whole windows; those that stay are settled.
func (e *Engine) resultsOf(c *kernel.Chain) []float32 {
	all := slices.Clone(c.Out)
	for _, x := range c.Taken {
		all = append(all, x.Data...)
	}
	for _, step := range c.Steps {
		switch x := step.(type) {
		case *kernel.NormBackStep:
			for _, v := range x.Sums {
				for range 3 { // all bits of it
					part := float32(v)
					all, v = append(all, part), v-float64(part)
				}
			}
		case *kernel.ExpertsBackStep:
			for _, n := range x.Ends {
				all = append(all, float32(n))
			}
		}
	}
	for _, x := range c.Moments {
		_ = e.Settle(x.Dst) // what is lost differs
		for i := range x.N {
			all = append(all, x.Dst[i*x.N:i*x.N+i+1]...)
		}
	}
	return all
}

// layerSize is the size of a layer of attention and an MLP that is measured.
type layerSize struct {
	hidden, wide, kv, shared, dim, window int
	gammas                                bool // gradients of norms are computed, too
}

// layerBack is the way through such a layer and back, for windows whose states and gradients draw returns, as it does weights. All gradients of
// outputs are taken.
func layerBack(s layerSize, windows []int, draw func(n int) []float32) *kernel.Chain {
	c := &kernel.Chain{Windows: windows}
	for _, n := range windows {
		c.Rows += n
	}
	matrix := func(width int) int {
		c.Widths = append(c.Widths, width)
		return len(c.Widths) - 1
	}
	add := func(list ...kernel.Step) { c.Steps = append(c.Steps, list...) }
	type linear struct {
		w       []float32
		n, src  int
		version uint64
	}
	forth := func(src, n int) (int, *linear) {
		l := &linear{draw(n * c.Widths[src]), n, src, kernel.NewVersion()}
		k := c.Widths[src]
		kernel.Scale(l.w, l.w, float32(1/math.Sqrt(float64(k))))
		dst := matrix(n)
		add(&kernel.LinearStep{Dst: dst, Src: src,
			Weights: kernel.Factor{Data: l.w, Layout: kernel.ByRow, Stride: k, Version: kernel.NewVersion(), Turned: l.version}})
		return dst, l
	}
	back := func(l *linear, dy int) int {
		k := c.Widths[l.src]
		dst := matrix(k)
		add(&kernel.LinearStep{Dst: dst, Src: dy, Weights: kernel.Factor{Data: l.w, Layout: kernel.ByPosition, Stride: k, Version: l.version}})
		c.Taken = append(c.Taken, kernel.Carried{Matrix: dy, Data: make([]float32, c.Rows*l.n)})
		return dst
	}
	norm := func(src, width int, eps float32) (dst int, back func(d int) int) {
		gamma := kernel.Vector(draw(width))
		dst = matrix(c.Widths[src])
		add(&kernel.NormStep{Dst: dst, Src: src, Gamma: gamma, Eps: eps})
		return dst, func(d int) int {
			step := &kernel.NormBackStep{Dst: d, Src: d, X: src, Gamma: gamma, Eps: eps}
			if s.gammas {
				step.Dst, step.Span, step.Sums = matrix(c.Widths[d]), 64*c.Widths[d]/width, make([]float64, (c.Rows+63)/64*width)
			}
			add(step)
			return step.Dst
		}
	}
	h, d, heads, longest := matrix(s.hidden), matrix(s.hidden), s.kv*s.shared, c.Longest()
	c.States, c.Given = draw(c.Rows*s.hidden), []kernel.Carried{{Matrix: d, Data: draw(c.Rows * s.hidden)}}
	turned := max(2, s.dim/2&^1)
	cos, sin := kernel.Vector(draw(longest*turned)), kernel.Vector(draw(longest*turned))
	turn := func(matrix, heads int) {
		add(&kernel.RotateStep{Matrix: matrix, Heads: heads, Dim: s.dim, Turned: turned, Cos: cos, Sin: sin})
	}

	x, normBack := norm(h, s.hidden, 1e-6)
	plain, lq := forth(x, heads*s.dim)
	k, lk := forth(x, s.kv*s.dim)
	v, lv := forth(x, s.kv*s.dim)
	q, queryBack := norm(plain, s.dim, 1e-5)
	turn(q, heads)
	turn(k, s.kv)
	o, weights := matrix(heads*s.dim), matrix(heads*longest)
	add(&kernel.AttendStep{Dst: o, Queries: q, Keys: k, Values: v, Heads: heads, Scale: .3, Together: 64, Span: spanOf(s.window, 64), Weights: weights})
	after, lo := forth(o, s.hidden)
	add(&kernel.AddStep{Dst: after, Src: h})
	y, normBack2 := norm(after, s.hidden, 1e-6)
	gate, lg := forth(y, s.wide)
	up, lu := forth(y, s.wide)
	product := matrix(s.wide)
	add(&kernel.GateStep{Dst: product, Matrix: gate, By: up})
	_, ld := forth(product, s.hidden)

	dInner := back(ld, d)
	add(&kernel.GateBackStep{Matrix: gate, By: up, D: dInner})
	dy := back(lg, gate)
	add(&kernel.AddStep{Dst: dy, Src: back(lu, up)})
	dAfter := normBack2(dy)
	add(&kernel.AddStep{Dst: dAfter, Src: d})
	do, together := back(lo, dAfter), max(1, 128/s.shared)
	w := &kernel.AttendBackStep{Queries: q, Keys: k, Values: v, Weights: weights, Out: o, DOut: do, Scores: matrix(heads * longest),
		DQueries: matrix(heads * s.dim), DKeys: matrix(s.kv * s.dim), DValues: matrix(s.kv * s.dim), Heads: heads, Scale: .3, Together: together,
		Span: spanOf(s.window, together)}
	add(w)
	turn(w.DQueries, heads)
	turn(w.DKeys, s.kv)
	c.Result = back(lq, queryBack(w.DQueries))
	add(&kernel.AddStep{Dst: c.Result, Src: back(lk, w.DKeys)})
	add(&kernel.AddStep{Dst: c.Result, Src: back(lv, w.DValues)})
	c.Result = normBack(c.Result)
	c.Out = make([]float32, c.Rows*s.hidden)
	return c
}

// backOf is the way through a layer and back, of random sizes. Calls with the same number return equal ones.
func backOf(seed uint64) *kernel.Chain {
	r := rand.New(rand.NewPCG(11, seed))
	s := layerSize{hidden: 1 + r.IntN(90), wide: 1 + r.IntN(300), kv: 1 + r.IntN(3), shared: 1 + r.IntN(4), dim: 2 * (1 + r.IntN(80)), gammas: seed%4 >= 2}
	longest := 1 + r.IntN(200)
	switch seed % 4 {
	case 1:
		s.window = 1 + r.IntN(90)
	case 2:
		s.kv, s.shared, longest = 1, 2, 300+r.IntN(100) // more than a segment
	}
	windows := []int{longest}
	for len(windows) < 1+int(seed%3) {
		windows = append(windows, 1+r.IntN(min(longest, 150)))
	}
	c := layerBack(s, windows, func(n int) []float32 { return smallOf(r, n) })
	for _, x := range c.Taken {
		if width := c.Widths[x.Matrix]; width%4 == 0 {
			from := r.IntN(width/4) * 4
			n := 1 + r.IntN(width-from)
			c.Moments = append(c.Moments, kernel.Moment{Dst: smallOf(r, n*n), Matrix: x.Matrix, From: from, N: n, Skip: int(seed % 3)})
		}
	}
	return c
}

// measureBack takes windows through a layer and back.
func (e *Engine) measureBack(seed uint64, times int) MeasuredWork {
	return e.measureCourse("chain of gradients", backOf(seed), times)
}

// measuredLayer is attention with its matrices, and for tokens an MLP, for states of so many elements: heads of 128, four of which share keys, and
// three times as many inner elements. Without whole windows it is for a token of each window, after past ones. Weights are BF16.
func measuredLayer(hidden, rows, past int, windows []int) *kernel.Chain {
	dim := max(2, min(128, hidden&^1))
	kv := max(1, hidden/dim/4)
	heads, length, wide := kv*max(1, hidden/dim/kv), slices.Max(append([]int{past + 1}, windows...)), 3*hidden
	seed := uint64(20)
	linear := func(dst, src, n, k int) kernel.Step {
		seed++
		w := drawn(n*k, seed)
		kernel.Scale(w, w, float32(1/math.Sqrt(float64(k))))
		return &kernel.LinearStep{Dst: dst, Src: src, Weights: stored(w, n, k, tensor.BF16)}
	}
	norm := &kernel.NormStep{Dst: 1, Src: 0, Gamma: kernel.Vector(slices.Repeat([]float32{1}, hidden)), Eps: 1e-6}
	cos, sin := kernel.Vector(drawn(length*dim, 18)), kernel.Vector(drawn(length*dim, 19))
	c := &kernel.Chain{
		Rows: rows, At: past, Widths: []int{hidden, hidden, heads * dim, kv * dim, kv * dim, hidden}, States: drawn(rows*hidden, 17), Windows: windows,
		Steps: []kernel.Step{
			norm, linear(2, 1, heads*dim, hidden), linear(3, 1, kv*dim, hidden), linear(4, 1, kv*dim, hidden),
			&kernel.NormStep{Dst: 2, Src: 2, Gamma: kernel.Vector(slices.Repeat([]float32{1}, dim)), Eps: 1e-6},
			&kernel.NormStep{Dst: 3, Src: 3, Gamma: kernel.Vector(slices.Repeat([]float32{1}, dim)), Eps: 1e-6},
			&kernel.RotateStep{Matrix: 2, Heads: heads, Dim: dim, Turned: dim, Cos: cos, Sin: sin},
			&kernel.RotateStep{Matrix: 3, Heads: kv, Dim: dim, Turned: dim, Cos: cos, Sin: sin},
			&kernel.AttendStep{Dst: 2, Queries: 2, Keys: 3, Values: 4, Heads: heads, Scale: float32(1 / math.Sqrt(float64(dim))), Together: 64,
				Span: func(int) (from, first int) { return 0, 0 }},
			linear(5, 2, hidden, heads*dim), &kernel.AddStep{Dst: 0, Src: 5},
		},
	}
	if windows != nil {
		c.Out = make([]float32, rows*hidden)
		return c
	}
	c.Widths = append(c.Widths, wide, wide)
	c.Steps = append(c.Steps, norm, linear(6, 1, wide, hidden), linear(7, 1, wide, hidden), &kernel.GateStep{Dst: 6, Matrix: 6, By: 7},
		linear(5, 6, hidden, wide), &kernel.AddStep{Dst: 0, Src: 5})
	c.Pasts, _, _ = pastsOf(rows, kv, dim, length)
	c.Pasts.Filled = past
	return c
}

// measuredWindows advance together, and have so many tokens before where steps are timed: few are those next to an 8B on a card of 24 GB.
const measuredWindows, measuredFew, measuredPast = 128, 32, 256

// measureLayer times a layer for a token of each of some windows, and attention with its matrices for all tokens of two windows, the
// recurrence of a delta net for them, and gradients of a layer for more of them; rates count the matrices, or the recurrence, alone.
func (e *Engine) measureLayer(hidden, tokens, times int) []MeasuredWork {
	length := max(1, min(tokens, mostMeasured)/2)
	return []MeasuredWork{
		e.measureCourse("tokens", measuredLayer(hidden, measuredWindows, 0, nil), times),
		e.measureCourse("windows", measuredLayer(hidden, 2*length, 0, []int{length, length}), times),
		e.measureCourse("recurrence", measuredRecurrence(hidden, []int{length, length}), times),
		e.measureCourse("gradients", measuredBack(hidden, slices.Repeat([]int{length}, max(1, min(tokens, 2*mostMeasured)/length))), times),
	}
}

// MeasuredStep is how long what a card does at a time takes of a layer for a token of each of some windows.
type MeasuredStep struct {
	Step    string  `json:"step"`
	Windows int     `json:"windows"`
	Seconds float64 `json:"seconds"`
}

// measureSteps times the pieces of a layer, each alone.
func (e *Engine) measureSteps(hidden, windows, times int) (list []MeasuredStep) {
	c := measuredLayer(hidden, windows, measuredPast, nil)
	defer e.Forget(c.Pasts)
	if !e.sampled(c) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, all := e.streams[0], c.Steps
	measure := func(name string, steps []kernel.Step) {
		const repeated = 16
		part := *c
		part.Steps = steps
		seconds := best(times, func() {
			for range repeated {
				e.steps(s, &part, &e.resident.spot)
			}
			_ = e.fence(s) && e.wait()
		})
		list = append(list, MeasuredStep{name, c.Rows, seconds / repeated})
	}
	for i := 0; i < len(all); {
		n := max(1, len(together(all[i:])))
		var name string
		switch x := all[i].(type) {
		case *kernel.NormStep:
			name = fmt.Sprintf("norm of %d", len(x.Gamma.Data))
		case *kernel.LinearStep:
			rows := 0
			for _, x := range together(all[i:]) {
				rows += c.Widths[x.Dst]
			}
			name = fmt.Sprintf("linear %dx%d", rows, c.Widths[x.Src])
		case *kernel.RotateStep:
			name = fmt.Sprintf("rotate %d heads", x.Heads)
		case *kernel.AttendStep:
			name = fmt.Sprintf("attend to %d", c.At+1)
		case *kernel.GateStep:
			name = "gate"
		case *kernel.AddStep:
			name = "add"
		}
		measure(name, all[i:i+n])
		i += n
	}
	measure("all", all)
	return list
}

// measuredBack is the way through a layer and back: heads of 128, four of which share keys, as far as states have so many elements.
func measuredBack(hidden int, windows []int) *kernel.Chain {
	seed, dim := uint64(30), max(2, min(128, hidden&^1))
	kv := max(1, hidden/dim/4)
	return layerBack(layerSize{hidden: hidden, wide: 3 * hidden, kv: kv, shared: max(1, hidden/dim/kv), dim: dim}, windows, func(n int) []float32 {
		seed++
		return drawn(n, seed)
	})
}
