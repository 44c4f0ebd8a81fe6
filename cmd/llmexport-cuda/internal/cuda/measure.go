package cuda

import (
	"math"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// Shape is a matrix of weights.
type Shape struct{ Rows, Cols int }

// Measured is how fast a product of calibration is. Rates are in TFLOP/s.
type Measured struct {
	Product string  `json:"product"` // linear, backward or moments
	Tokens  int     `json:"tokens"`
	Shape   Shape   `json:"shape"`
	Tile128 float64 `json:"tile_128"` // the kernel alone, by the rows of its tiles
	Tile256 float64 `json:"tile_256"`
	Card    float64 `json:"card"` // with copies
	CPU     float64 `json:"cpu"`
	Differ  int     `json:"differ"` // elements with other bits
}

// Measurement is what a card and the CPU of its machine do.
type Measurement struct {
	Card     string         `json:"card"`
	Peak     float64        `json:"peak"`     // TFLOP/s of float32
	Send     float64        `json:"send"`     // GB/s from memory of the program
	Receive  float64        `json:"receive"`  // GB/s to it
	Pinned   float64        `json:"pinned"`   // GB/s to the card from memory that the driver has pinned
	Returned float64        `json:"returned"` // GB/s from the card to such memory
	Products []Measured     `json:"products"`
	Works    []MeasuredWork `json:"works"`
	Steps    []MeasuredStep `json:"steps"`
}

// Peak is the rate of float32 operations in TFLOP/s at the card's highest clock.
func (c Card) Peak() float64 {
	units := 128
	if c.Major == 8 && c.Minor == 0 {
		units = 64
	}
	return float64(c.Processors*units*2) * float64(c.Clock) * 1e-9
}

// Measure times the products of calibration for matrices of weights and so many tokens, what gptq does with such matrices, and what follows the
// products of heads, each the best of so many times.
func (e *Engine) Measure(shapes, heads []Shape, tokens, times int) (*Measurement, error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	e.do("cuCtxSetCurrent", e.driver.setCurrent(e.context))
	least := e.least
	e.least = 0
	defer func() { e.least = least }()
	r := &Measurement{Card: e.card.String(), Peak: e.card.Peak()}
	e.measureCopies(r, times)
	inputs := map[int]bool{}
	for _, s := range shapes {
		r.Products = append(r.Products, e.measureLinear(s, tokens, times))
		r.Products = append(r.Products, e.measureBackward(s, tokens, times))
	}
	for _, s := range shapes {
		if !inputs[s.Cols] {
			inputs[s.Cols] = true
			r.Products = append(r.Products, e.measureMoments(s.Cols, tokens, times))
			r.Works = append(r.Works, e.measureFactor((s.Cols+3)/4*4, times))
			if s.Cols <= widestMeasured {
				r.Works = append(r.Works, e.measureLayer(s.Cols, tokens, times)...)
				r.Works = append(r.Works, e.measureExperts(s.Cols, min(tokens, mostMeasured), times)...)
				r.Steps = slices.Concat(r.Steps, e.measureSteps(s.Cols, measuredWindows, times), e.measureSteps(s.Cols, measuredFew, times))
			}
		}
		r.Works = append(r.Works, e.measureFeedback(s, times), e.measureFeedbacks(s, times), e.measureDescent(s, times), e.measureChoice(s, times),
			e.measureRefinement(s, there, times), e.measureRefinement(s, here, times))
	}
	for _, s := range heads {
		n := min(tokens, mostMeasured)
		r.Products = append(r.Products, e.measureLinear(s, n, times), e.measureBackward(s, n, times))
		l := drawnLogits(n, s)
		r.Works = append(r.Works, e.measureDivergences(l, times), e.measureLabels(l, times), e.measureDraws(l, times))
	}
	return r, e.Err()
}

// widestMeasured bounds the states of branches that are measured, which the CPU computes in one thread, mostMeasured their tokens, twice as many on
// the way back, and the rows of logits.
const widestMeasured, mostMeasured = 8192, 1024

// best is the shortest of so many times, after one that is not counted.
func best(times int, f func()) float64 {
	shortest := math.Inf(1)
	for i := range times + 1 {
		at := time.Now()
		f()
		if i > 0 {
			shortest = min(shortest, time.Since(at).Seconds())
		}
	}
	return shortest
}

// drawn returns values of a normal size.
func drawn(n int, seed uint64) []float32 {
	x := make([]float32, n)
	kernel.Parallel(0, (n+1<<16-1)>>16, func(lo, hi int) {
		r := rand.New(rand.NewPCG(seed, uint64(lo)))
		for i := lo << 16; i < min(hi<<16, n); i++ {
			x[i] = r.Float32() - 0.5
		}
	})
	return x
}

func (e *Engine) measureCopies(r *Measurement, times int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 8 * e.slot
	b, ok := e.more(4 * uint64(n))
	if !ok || !e.pin() {
		return
	}
	defer e.release(&b)
	x := drawn(n, 1)
	s, rate := e.streams[0], 4*float64(n)*1e-9
	r.Send = rate / best(times, func() { _ = e.upload(s, b.at, values(x)) && e.fence(s) && e.wait() })
	r.Receive = rate / best(times, func() { _ = e.download(s, values(x), b.at) && e.finishAll() })
	slot := e.up[0]
	size := uint64(4 * len(slot.host))
	many := 4 * uint64(n) / size
	r.Pinned = rate / best(times, func() {
		for i := range many {
			e.do("cuMemcpyHtoDAsync", e.driver.toDevice(b.at+i*size, unsafe.Pointer(&slot.host[0]), size, s))
		}
		_ = e.fence(s) && e.wait()
	})
	r.Returned = rate / best(times, func() {
		for i := range many {
			e.do("cuMemcpyDtoHAsync", e.driver.toHost(unsafe.Pointer(&slot.host[0]), b.at+i*size, size, s))
		}
		_ = e.fence(s) && e.wait()
	})
}

// wait waits for what the last fence stands for.
func (e *Engine) wait() bool { return e.do("cuEventSynchronize", e.driver.await(e.done)) }

// measureKernel times the kernel alone, on factors that are on the card.
func (e *Engine) measureKernel(into *Measured, a, b matrix, fa, fb func(at uint64) factor, rows, cols, k int, lower bool, flop float64, times int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.more(a.bytes())
	y, okay := e.more(b.bytes())
	z, good := e.more(4 * uint64(rows*cols))
	defer e.release(&x)
	defer e.release(&y)
	defer e.release(&z)
	s := e.streams[0]
	if !ok || !okay || !good || !e.pin() || !e.upload(s, x.at, a) || !e.upload(s, y.at, b) || !e.fence(s) || !e.wait() {
		return
	}
	const repeated = 4 // products in a row
	for _, wide := range []bool{false, true} {
		e.wide = wide
		seconds := best(times, func() {
			for range repeated {
				e.multiply(s, z.at, fa(x.at), fb(y.at), rows, cols, k, lower, kernel.All)
			}
			_ = e.fence(s) && e.wait()
		})
		if rate := repeated * flop / seconds * 1e-12; wide {
			into.Tile256 = rate
		} else {
			into.Tile128 = rate
		}
	}
	e.wide = false
}

// measureWhole times a product with its copies, and on the CPU, and compares.
func (e *Engine) measureWhole(m *Measured, p *kernel.Product, want []float32, cpu func(), flop float64, times int) {
	done := true
	m.Card = flop / best(times, func() { done = e.Compute(p) && e.wait() && done }) * 1e-12
	at := time.Now()
	cpu()
	m.CPU = flop / time.Since(at).Seconds() * 1e-12
	if m.Differ = differ(p.Dst, want); !done {
		m.Differ, m.Card = len(want), 0
	}
}

// differ counts elements with other bits; NaNs are alike.
func differ(got, want []float32) (n int) {
	for i, w := range want {
		if math.Float32bits(w) != math.Float32bits(got[i]) && (w == w || got[i] == got[i]) {
			n++
		}
	}
	return n
}

func (e *Engine) measureLinear(s Shape, tokens, times int) Measured {
	n, k := s.Rows, s.Cols
	var packed kernel.Packed
	packed.Pack(drawn(n*k, 2), n, k, k)
	return e.measureRows(Measured{Product: "linear", Tokens: tokens, Shape: s}, packed.Factor(), n, k, times,
		func(dst, a []float32, rows, from, to int) { packed.MulT(dst, a, rows, n, k, from, to) })
}

func (e *Engine) measureBackward(s Shape, tokens, times int) Measured {
	n, k := s.Cols, s.Rows
	b := drawn(n*k, 2)
	right := kernel.Factor{Data: b, Layout: kernel.ByPosition, Stride: n, Version: kernel.NewVersion()}
	return e.measureRows(Measured{Product: "backward", Tokens: tokens, Shape: s}, right, n, k, times,
		func(dst, a []float32, rows, from, to int) {
			kernel.MatMul(dst[from:], a, b[from:], rows, to-from, k, n, k, n)
		})
}

// measureRows measures a product of rows [tokens, k] and a factor of n columns. multiply computes columns from to to-1 of some rows on the
// CPU.
func (e *Engine) measureRows(r Measured, right kernel.Factor, n, k, times int, multiply func(dst, a []float32, rows, from, to int)) Measured {
	m := r.Tokens
	a := drawn(m*k, 1)
	var rows kernel.Packed
	rows.Pack(a, m, k, k)
	flop := 2 * float64(m) * float64(n) * float64(k)
	e.measureKernel(&r, matrixOf(rows.Factor(), m, k), matrixOf(right, n, k), func(at uint64) factor { return panels(at, k) },
		func(at uint64) factor { return factorOf(right, at, n, k) }, m, n, k, false, flop, times)
	got, want := make([]float32, m*n), make([]float32, m*n)
	p := &kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n,
		Parts: []kernel.Part{{A: kernel.Factor{Data: a, Layout: kernel.ByRow, Stride: k}, B: right, K: k}}}
	e.measureWhole(&r, p, want, func() {
		const part = 128
		across := (n + part - 1) / part
		kernel.Parallel(0, across*((m+part-1)/part), func(u, end int) {
			for ; u < end; u++ {
				i, j := u/across*part, u%across*part
				multiply(want[i*n:], a[i*k:], min(part, m-i), j, min(j+part, n))
			}
		})
	}, flop, times)
	return r
}

func (e *Engine) measureMoments(n, tokens, times int) Measured {
	const windows = 4
	k := max(1, tokens/windows)
	x := drawn(windows*k*n, 1)
	flop := float64(k) * float64(n) * float64(n+1)
	r := Measured{Product: "moments", Tokens: windows * k, Shape: Shape{n, n}}
	f := kernel.Factor{Data: x[:k*n], Layout: kernel.ByPosition, Stride: n}
	onCard := func(at uint64) factor { return factorOf(f, at, n, k) }
	e.measureKernel(&r, matrixOf(f, n, k), matrixOf(f, n, k), onCard, onCard, n, n, k, true, flop, times)
	got, want := make([]float32, n*n), make([]float32, n*n)
	p := &kernel.Product{Dst: got, Rows: n, Cols: n, Stride: n, Sum: kernel.AddLower, Stay: true}
	for w := range windows {
		f.Data = x[w*k*n : (w+1)*k*n]
		p.Parts = append(p.Parts, kernel.Part{A: f, B: f, K: k})
	}
	e.measureWhole(&r, p, want, func() {
		for w := range windows {
			var packed kernel.Packed
			packed.Resize(n, k)
			packed.PackColumns(x[w*k*n:], 0, n, n)
			kernel.Parallel(0, (n+63)/64, func(u, end int) {
				for ; u < end; u++ {
					u := (n+63)/64 - 1 - u // the longest rows first
					packed.Syrk(want, x[w*k*n:(w+1)*k*n], u*64, min(u*64+64, n), 0, n, n, n)
				}
			})
		}
	}, windows*flop, times)
	// The result on the card is the sum of all times.
	e.mu.Lock()
	e.team.home(got)
	held := e.held[&got[0]]
	delete(e.held, &got[0])
	e.release(&held.buffer)
	e.mu.Unlock()
	clear(got)
	p.Stay = false
	if r.Differ = len(want); e.Compute(p) {
		r.Differ = differ(got, want)
	}
	return r
}
