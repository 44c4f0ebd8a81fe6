package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// randomHead returns a matrix for logits of widely different sizes, by row or by panel, and as the right-hand side of products with gradients.
func randomHead(r *rand.Rand, vocab, width int) (weights, back kernel.Factor) {
	w := floats(r, vocab*width, false)
	for i := range w {
		w[i] = max(-1, min(1, w[i]))
	}
	back = kernel.Factor{Data: w, Layout: kernel.ByPosition, Stride: width, Version: kernel.NewVersion()}
	if r.IntN(2) == 0 {
		return kernel.Factor{Data: w, Layout: kernel.ByRow, Stride: width, Version: kernel.NewVersion()}, back
	}
	p := new(kernel.Packed)
	p.Pack(w, vocab, width, width)
	return p.Factor(), back
}

// randomLogits returns logits of one or several tiles, of rows that are flat, ordinary and steep.
func randomLogits(r *rand.Rand, infinite bool) (l kernel.Logits, back kernel.Factor) {
	l.Rows, l.Vocab, l.Width = 1+r.IntN(12), 1+r.IntN([]int{10, 300, 3000}[r.IntN(3)]), 1+r.IntN(40)
	l.Weights, back = randomHead(r, l.Vocab, l.Width)
	l.X = floats(r, l.Rows*l.Width, false)
	for i := range l.X {
		l.X[i] = max(-1, min(1, l.X[i])) * []float32{1e-3, 1, 10, 500}[i/l.Width%4]
	}
	if infinite {
		l.X[r.IntN(len(l.X))] = []float32{float32(math.Inf(1)), float32(math.NaN()), float32(math.Inf(-1))}[r.IntN(3)]
	}
	return l, back
}

// places are numbers from 0 to 1, the ends among them.
func places(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = []float64{r.Float64(), r.Float64(), 0, 1 - 0x1p-53}[r.IntN(4)]
	}
	return x
}

// TestLogits compares divergences, gradients for labels, and drawn tokens with those of the CPU, bit by bit. Logits that are kept are used again.
func TestLogits(t *testing.T) {
	e := engine(t)
	left := 0
	for s := range max(20, *shapes) {
		r := rand.New(rand.NewPCG(21, uint64(s)))
		infinite := s%4 == 3
		l, back := randomLogits(r, infinite)
		if e.piece = pieceBytes; s%3 == 1 {
			e.piece = 4 * l.Vocab * (1 + r.IntN(5))
		}
		x := slices.Clone(l.X)
		for i := range x {
			x[i] *= 1 + .1*r.Float32()
		}
		other := l
		other.X = x
		if s%2 == 0 {
			other.Weights, _ = randomHead(r, l.Vocab, l.Width)
			l.Version = kernel.NewVersion()
		}
		wanted := &kernel.Divergences{Want: l, Got: other, KL: make([]float64, l.Rows)}
		wanted.Do()
		for i := range 2 {
			got := *wanted
			got.KL = make([]float64, l.Rows)
			if i == 1 && l.Version != 0 { // what is kept is not computed again
				got.Want.X = make([]float32, len(l.X))
			}
			if ok := e.Compute(&got); !ok || differ(quarters(got.KL), quarters(wanted.KL)) > 0 {
				t.Fatalf("logits %d, %d of %d x %d: computed %v, divergences %v, want %v", s, l.Rows, l.Vocab, l.Width, ok, got.KL, wanted.KL)
			}
		}

		gradient := func() *kernel.Labels {
			return &kernel.Labels{Logits: l, Back: back, At: places(rand.New(rand.NewPCG(22, uint64(s))), l.Rows), Squares: make([]float64, l.Rows),
				Gradient: make([]float32, l.Rows*l.Width)}
		}
		got, want := gradient(), gradient()
		finite := want.Do()
		if ok := e.Compute(got); ok != finite || finite && differ(got.Gradient, want.Gradient)+differ(quarters(got.Squares), quarters(want.Squares)) > 0 {
			t.Fatalf("logits %d, %d of %d x %d: labels computed %v, want %v; gradients %v, want %v", s, l.Rows, l.Vocab, l.Width, ok, finite,
				got.Gradient, want.Gradient)
		}
		drawn := func() *kernel.Draws {
			return &kernel.Draws{Logits: l, At: places(r, l.Rows), Tokens: make([]int32, l.Rows)}
		}
		tokens := drawn()
		expected := *tokens
		expected.Tokens = make([]int32, l.Rows)
		finite = expected.Do()
		if ok := e.Compute(tokens); ok != finite || finite && !slices.Equal(tokens.Tokens, expected.Tokens) {
			t.Fatalf("logits %d, %d of %d x %d: drawn %v, want %v; tokens %v, want %v", s, l.Rows, l.Vocab, l.Width, ok, finite,
				tokens.Tokens, expected.Tokens)
		}
		if !finite {
			left++
		}
		if e.Err() != nil {
			t.Fatal(e.Err())
		}
	}
	if left == 0 || left > max(20, *shapes)/2 {
		t.Errorf("%d logits were not finite", left)
	}
}

// TestLogitsFail reports that nothing was computed where memory does not suffice, and where any call of the driver fails.
func TestLogitsFail(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 1))
	l, back := randomLogits(r, false)
	l.Version = kernel.NewVersion()
	for i, w := range []kernel.Work{
		&kernel.Divergences{Want: l, Got: l, KL: make([]float64, l.Rows)},
		&kernel.Labels{Logits: l, Back: back, At: places(r, l.Rows), Squares: make([]float64, l.Rows), Gradient: make([]float32, l.Rows*l.Width)},
		&kernel.Draws{Logits: l, At: places(r, l.Rows), Tokens: make([]int32, l.Rows)},
	} {
		e := engine(t)
		e.Bound(1000)
		if e.Compute(w) || e.Err() != nil {
			t.Errorf("work %d that does not fit was computed, or failed: %v", i, e.Err())
		}
		calls := 0
		for failed := true; failed; calls++ {
			e := engine(t)
			failed = !failAt(e, calls, func() bool { return e.Compute(w) })
			if failed && (e.Err() == nil || e.kept.of[l.Version] != nil || e.Compute(w)) {
				t.Fatalf("call %d of work %d failed: no error, or logits stay, or the card was used afterwards: %v", calls, i, e.Err())
			}
		}
		if calls < 20 {
			t.Errorf("work %d made %d calls", i, calls-1)
		}
	}
}
