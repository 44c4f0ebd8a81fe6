package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestChains takes tokens through layers, and compares the states with those of the CPU, bit by bit. After some of them the device is told to forget.
func TestChains(t *testing.T) {
	e := engine(t)
	most := e.mostAdded
	for s := range max(8, *shapes/10) {
		r := rand.New(rand.NewPCG(4, uint64(s)))
		past, tokens := r.IntN(300)*r.IntN(2), 3
		if s == 0 {
			past = 600 // more than two segments
		}
		got, want := chainOf(uint64(s), past, tokens), chainOf(uint64(s), past, tokens)
		e.busy = []int{busyTiles, 1}[s/3%2]
		e.mostAdded = most
		if s%3 == 2 { // heads that share keys have no room at the same time
			p, n := got.Pasts.Of[0], past+tokens
			e.mostAdded = 4*(n+(n+kernel.Segment-1)/kernel.Segment*p.Value) + 16
		}
		few := *got // the first window alone
		few.Rows, few.States = 1, slices.Clone(got.States[:got.Widths[0]])
		if !e.Compute(&few) {
			t.Fatalf("chain %d of one row: not computed, %v", s, e.Err())
		}
		for range tokens {
			want.Do()
			if ok := e.Compute(got); !ok || differ(got.States, want.States) > 0 {
				t.Fatalf("chain %d of %d rows at %d, widths %v: computed %v, %d of %d elements differ", s, got.Rows, got.At, got.Widths, ok,
					differ(got.States, want.States), len(want.States))
			}
			if e.resident.rows != got.Rows {
				t.Fatalf("chain %d: room for %d rows of %d", s, e.resident.rows, got.Rows)
			}
			got.At++
			want.At++
			got.States = slices.Clone(want.States)
		}
		if s%2 == 0 {
			e.Forget(got.Pasts)
			if e.resident != nil {
				t.Fatal("memory is left")
			}
			if got.At--; e.Compute(got) {
				t.Error("tokens were followed by another one, and nobody has their keys and values")
			}
		}
	}
}

// TestLittleRoom takes tokens through layers of which some weights come for every token, others stay: those with as many bits as they are stored in.
func TestLittleRoom(t *testing.T) {
	for s := range uint64(8) {
		got, want := chainOf(s, 40, 3), chainOf(s, 40, 3)
		var linears []*kernel.LinearStep
		for _, step := range got.Steps {
			if l, ok := step.(*kernel.LinearStep); ok && l.Weights.Layout == kernel.ByPanel {
				linears = append(linears, l)
			}
		}
		if linears == nil {
			continue
		}
		e := engine(t)
		token := func() (sent int64) {
			t.Helper()
			before := e.Spent().Sent
			want.Do()
			if !e.Compute(got) || differ(got.States, want.States) > 0 {
				t.Fatalf("chain %d at %d: %d of %d elements differ, %v", s, got.At, differ(got.States, want.States), len(want.States), e.Err())
			}
			got.At++
			want.At++
			return e.Spent().Sent - before
		}
		token()
		if sent := token(); sent != 4*int64(len(got.States)) {
			t.Errorf("chain %d: %d bytes sent for a token, want the states, %d", s, sent, 4*len(got.States))
		}
		// room for all but three matrices
		gone := int64(0)
		for _, l := range linears[len(linears)-3:] {
			k := e.kept.of[l.Weights.Version]
			bytes := int64(bytesOf(l.Weights, got.Widths[l.Dst], got.Widths[l.Src]))
			panels := int64(len(l.Weights.Data))
			if l.Weights.Stored == tensor.F32 && bytes != 4*panels || l.Weights.Stored != tensor.F32 && bytes != 2*panels || k.bytes != uint64(bytes) {
				t.Errorf("chain %d: %d numbers of %v take %d bytes", s, panels, l.Weights.Stored, k.bytes)
			}
			gone += bytes
			e.forget(k)
		}
		e.drain()
		e.limit = 0
		for _, b := range append(e.scratch(), &e.turns, &e.resident.memory) {
			e.limit += max(b.size, sizeOf(0))
		}
		for _, k := range e.kept.of {
			e.limit += k.size
		}
		if sent := token(); sent != 4*int64(len(got.States))+gone {
			t.Errorf("chain %d: %d bytes sent for a token, want %d of the states and %d of three matrices", s, sent, 4*len(got.States), gone)
		}
	}
}

// TestWholes takes all tokens of windows through layers, and compares what comes out with the CPU's, bit by bit.
func TestWholes(t *testing.T) {
	e := engine(t)
	for s := range max(12, *shapes/8) {
		got, want := wholeOf(uint64(s)), wholeOf(uint64(s))
		want.Do()
		e.busy = []int{busyTiles, 1}[s%2]
		if !e.Compute(got) {
			t.Fatalf("windows %d: not computed, %v", s, e.Err())
		}
		if n := differ(got.Out, want.Out); n > 0 {
			t.Fatalf("windows %d of %v tokens, widths %v, matrix %d: %d of %d elements differ", s, got.Windows, got.Widths, got.Result, n, len(want.Out))
		}
		if e.passing.at != 0 {
			t.Fatal("memory is left")
		}
	}
	long := wholeOf(2)
	e.mostAdded = 4 * wholeRows * long.Longest() / 2
	if e.Compute(long) || e.Err() != nil {
		t.Errorf("windows too long for the shared memory were computed, or failed: %v", e.Err())
	}
}

// TestBack takes windows through a layer and back, and compares gradients with the CPU's, bit by bit, also where states and gradients are infinite.
func TestBack(t *testing.T) {
	e := engine(t)
	for s := range max(8, *shapes/8) {
		got, want := backOf(uint64(s)), backOf(uint64(s))
		if s%4 == 3 {
			for _, c := range []*kernel.Chain{got, want} {
				c.States[len(c.States)/2], c.Given[0].Data[len(c.States)/3] = float32(math.Inf(1)), float32(math.Inf(-1))
			}
		}
		want.Do()
		e.busy = []int{busyTiles, 1}[s%2]
		if !e.Compute(got) {
			t.Fatalf("windows %d: not computed, %v", s, e.Err())
		}
		if n := differ(e.resultsOf(got), e.resultsOf(want)); n > 0 {
			t.Errorf("windows %d of %v tokens, widths %v: %d gradients differ", s, got.Windows, got.Widths, n)
		}
	}
	c, weights, before := measuredBack(64, []int{50}), int64(0), e.Spent().Sent
	for _, step := range c.Steps {
		if x, ok := step.(*kernel.LinearStep); ok && x.Weights.Layout == kernel.ByRow {
			weights += 4 * int64(len(x.Weights.Data))
		}
	}
	if !e.Compute(c) || e.Spent().Sent-before > weights*3/2 {
		t.Errorf("weights of %d bytes travelled twice: %d bytes were sent, %v", weights, e.Spent().Sent-before, e.Err())
	}
	long := backOf(2)
	e.mostAdded = 4 * wholeRows * long.Longest() / 2
	if e.Compute(long) || e.Err() != nil {
		t.Errorf("windows too long for the shared memory were computed, or failed: %v", e.Err())
	}
}

// TestLanes compares sums in float64 of which other orders give other numbers: large summands cancel each other.
func TestLanes(t *testing.T) {
	e := engine(t)
	r := rand.New(rand.NewPCG(12, 12))
	for range 6 {
		const rows = 40
		n := 9 + r.IntN(30)
		x, d := smallOf(r, rows*n), smallOf(r, rows*n)
		for row := range rows {
			i, j := r.IntN(n), r.IntN(n)
			if i != j {
				x[row*n+i], x[row*n+j], d[row*n+i], d[row*n+j] = 1, 1, 0x1p60, -0x1p60
			}
		}
		ones := slices.Repeat([]float32{1}, n)
		chain := func() *kernel.Chain {
			return &kernel.Chain{
				Rows: rows, Widths: []int{n, n, n, n, n, 1, 1, n, n, n}, Windows: slices.Repeat([]int{1}, rows), States: x,
				Given: []kernel.Carried{{Matrix: 1, Data: d}, {Matrix: 2, Data: d}}, Result: 1, Out: make([]float32, rows*n),
				Taken: []kernel.Carried{{Matrix: 8, Data: make([]float32, rows*n)}},
				Steps: []kernel.Step{
					&kernel.NormBackStep{Dst: 1, Src: 1, X: 0, Gamma: kernel.Vector(ones), Eps: 1},
					&kernel.LinearStep{Dst: 3, Src: 0, Weights: kernel.Factor{Data: smallOf(rand.New(rand.NewPCG(1, 1)), n*n), Layout: kernel.ByPosition, Stride: n,
						Version: kernel.NewVersion()}},
					// A token alone attends to itself, and the result is its value.
					&kernel.AttendStep{Dst: 4, Queries: 3, Keys: 3, Values: 0, Heads: 1, Scale: 1, Span: spanOf(0, 64), Together: 64, Weights: 5},
					&kernel.AttendBackStep{Queries: 3, Keys: 3, Values: 0, Weights: 5, Out: 4, DOut: 2, Scores: 6, DQueries: 7, DKeys: 8, DValues: 9, Heads: 1,
						Scale: 1, Span: spanOf(0, 128), Together: 128},
				},
			}
		}
		got, want := chain(), chain()
		want.Do()
		if !e.Compute(got) {
			t.Fatal(e.Err())
		}
		if n := differ(e.resultsOf(got), e.resultsOf(want)); n > 0 {
			t.Errorf("%d elements differ", n)
		}
	}
}

// TestWholesFail reports that nothing was computed where memory does not suffice, and where any call of the driver fails.
func TestWholesFail(t *testing.T) {
	for _, c := range []*kernel.Chain{wholeOf(4), backOf(4), recurrenceOf(4)} {
		e := engine(t)
		e.Bound(1000)
		if e.Compute(c) || e.Err() != nil {
			t.Errorf("windows that do not fit were computed, or failed: %v", e.Err())
		}
		calls := 0
		for failed := true; failed; calls++ {
			e := engine(t)
			failed = !failAt(e, calls, func() bool { return e.Compute(c) })
			if failed && (e.Err() == nil || e.Compute(c)) {
				t.Fatalf("call %d failed: no error, or the card was used afterwards: %v", calls, e.Err())
			}
		}
		if calls < 40 {
			t.Errorf("windows made %d calls", calls-1)
		}
	}
}
