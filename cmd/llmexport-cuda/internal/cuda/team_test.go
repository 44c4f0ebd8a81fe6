package cuda

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// expert is what a goroutine of TestTeam does by itself: moments, and a matrix that is encoded with them.
type expert struct {
	x, y []float32
	st   *quant.Stats
	w    quant.Matrix
	got  quant.Blocks
	err  error
}

func randomExpert(seed uint64) *expert {
	const tokens = 40
	r := rand.New(rand.NewPCG(31, seed))
	rows, cols := 4+r.IntN(8), 32*(3+r.IntN(4))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	return &expert{x: random(tokens * cols), y: random(tokens * cols), w: quant.Matrix{Rows: rows, Cols: cols, Data: random(rows * cols)}}
}

func (x *expert) run() {
	cols := x.w.Cols
	x.st = &quant.Stats{Cols: cols, Tokens: int64(len(x.x) / cols), Hessian: make([]float32, cols*cols), Cross: make([]float32, cols*cols),
		Version: kernel.NewVersion()}
	f := func(data []float32) kernel.Factor {
		return kernel.Factor{Data: data, Layout: kernel.ByPosition, Stride: cols}
	}
	for _, p := range []kernel.Product{
		{Dst: x.st.Hessian, Parts: []kernel.Part{{A: f(x.x), B: f(x.x), K: len(x.x) / cols}}},
		{Dst: x.st.Cross, Parts: []kernel.Part{{A: f(x.y), B: f(x.x), K: len(x.x) / cols}}},
	} {
		p.Rows, p.Cols, p.Stride, p.Sum, p.Stay = cols, cols, cols, kernel.AddParts, true
		if !kernel.Offload(&p) {
			product := make([]float32, cols*cols)
			a := make([]float32, len(x.x))
			for i, v := range p.Parts[0].A.Data {
				a[i%cols*(len(a)/cols)+i/cols] = v
			}
			kernel.MatMul(product, a, x.x, cols, cols, len(a)/cols, cols, len(a)/cols, cols)
			kernel.Add(p.Dst, p.Dst, product)
		}
	}
	for _, sum := range [][]float32{x.st.Hessian, x.st.Cross} {
		if x.err = kernel.Settle(sum); x.err != nil {
			return
		}
	}
	s := quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16}
	l, err := s.Layout(x.w.Rows, cols)
	if x.err = err; err != nil {
		return
	}
	x.got = quant.NewBlocks(l, s)
	var e quant.Encoder
	if e, x.err = quant.NewGPTQ().Prepare(s, cols, x.st, 1); x.err == nil {
		x.err = e.(quant.Together).EncodeTogether(x.got, x.w, 1)
	}
}

// expertsApart runs experts in goroutines that share the device.
func expertsApart(seeds int) (list []*expert) {
	defer kernel.Apart(seeds / 2)()
	var wait sync.WaitGroup
	for i := range seeds {
		x := randomExpert(uint64(i))
		list = append(list, x)
		wait.Go(x.run)
	}
	wait.Wait()
	return list
}

// Goroutines that share a card have the bits of the CPU, and give back the memory of the card. Where a call of the driver fails, they have them,
// too, or the error of lost sums.
func TestTeam(t *testing.T) {
	const seeds = 8
	var want []*expert
	for i := range seeds {
		x := randomExpert(uint64(i))
		if x.run(); x.err != nil {
			t.Fatal(x.err)
		}
		want = append(want, x)
	}
	defer kernel.SetDevice(nil)
	e := engine(t)
	kernel.SetDevice(e)
	limit := e.limit
	for range 2 {
		for i, x := range expertsApart(seeds) {
			if x.err != nil || !slices.Equal(x.st.Hessian, want[i].st.Hessian) || !slices.Equal(x.st.Cross, want[i].st.Cross) ||
				!reflect.DeepEqual(x.got, want[i].got) {
				t.Errorf("expert %d: %v, or other numbers", i, x.err)
			}
		}
		left := uint64(0) // regions
		for _, one := range e.team.all[1:] {
			left += one.given
		}
		if e.limit+left != limit || left > limit/regionShare || len(e.team.sums)+len(e.team.versions) > 0 {
			t.Errorf("the card's engine has %d bytes of %d, %d results and %d factors are elsewhere", e.limit, limit, len(e.team.sums), len(e.team.versions))
		}
	}
	// The moments, the factor, the mismatch, the target, the feedback and the descent of each.
	if n := e.Spent().Products; n != 2*seeds*(2+1+2+1+1+1) || e.Err() != nil {
		t.Errorf("%d pieces of work were done on the card, %v", n, e.Err())
	}
	for i, one := range e.team.all {
		if one.spent.Products == 0 || i > 0 && len(one.kept.of)+len(one.idle)+len(one.held) > 0 {
			t.Errorf("engine %d of %d did %d pieces of work, and has memory of %d factors", i, len(e.team.all), one.spent.Products, len(one.kept.of))
		}
	}
	if len(e.team.all) != seeds/2 {
		t.Errorf("%d engines", len(e.team.all))
	}
	lost := 0
	for call := 0; call < 900; call += 83 {
		e := engine(t)
		kernel.SetDevice(e)
		failAt(e, call, func() bool {
			for i, x := range expertsApart(seeds) {
				if x.err != nil {
					lost++
				} else if !reflect.DeepEqual(x.got, want[i].got) {
					t.Errorf("call %d fails: expert %d has other numbers", call, i)
				}
			}
			return true
		})
		if e.Err() == nil {
			t.Errorf("call %d failed without an error", call)
		}
	}
	t.Logf("%d experts lost their moments", lost)
}

// Sums of a chain belong to one engine: those of another one are left to the caller, and what is added to the sums of a chain goes to its engine,
// however much that has to do.
func TestMomentsApart(t *testing.T) {
	c, want := backOf(0), backOf(0)
	want.Do()
	n, dst := c.Moments[0].N, c.Moments[0].Dst
	add := func(dst []float32) *kernel.Product {
		x := kernel.Factor{Data: smallOf(rand.New(rand.NewPCG(37, 1)), 8*n), Layout: kernel.ByPosition, Stride: n}
		return &kernel.Product{Dst: dst, Rows: n, Cols: n, Stride: n, Sum: kernel.AddLower, Parts: []kernel.Part{{A: x, B: x, K: 8}}, Stay: true}
	}
	e := engine(t)
	e.Apart(3)
	defer e.Apart(1)
	own := e.team.give(&kernel.Refinement{}) // is busy
	defer e.team.taken(own)
	if !e.Compute(add(dst)) || len(e.held) > 0 || e.Compute(c) {
		t.Fatalf("sums of another engine were added to, or are with the card's own: %v", e.Err())
	}
	if err := e.Settle(dst); err != nil {
		t.Fatal(err)
	}
	c = backOf(0)
	if dst = c.Moments[0].Dst; !e.Compute(c) || !e.Compute(add(dst)) || e.Spent().Products != 3 {
		t.Fatal(e.Err())
	}
	other := engine(t)
	if !other.Compute(add(want.Moments[0].Dst)) {
		t.Fatal(other.Err())
	}
	if n := differ(e.resultsOf(c), other.resultsOf(want)); n > 0 || len(e.team.sums) > 0 {
		t.Errorf("%d numbers differ, %d sums are somewhere", n, len(e.team.sums))
	}
}

// TestPartsLimit counts what a part of a card keeps while it does not work: the limit is that of all parts.
func TestPartsLimit(t *testing.T) {
	e := engine(t)
	limit := e.limit
	for range 2 {
		e.Apart(2)
		other := e.team.all[1]
		if other.cuts.size = 1 << 20; e.limit+other.limit != limit {
			t.Fatalf("%d and %d bytes of %d", e.limit, other.limit, limit)
		}
		x, dst := kernel.Factor{Data: smallOf(rand.New(rand.NewPCG(38, 1)), 8*64), Layout: kernel.ByPosition, Stride: 64}, make([]float32, 64*64)
		if !e.Compute(&kernel.Product{Dst: dst, Rows: 64, Cols: 64, Stride: 64, Sum: kernel.AddLower, Parts: []kernel.Part{{A: x, B: x, K: 8}}, Stay: true}) ||
			e.Settle(dst) != nil {
			t.Fatal(e.Err())
		}
		if e.Apart(1); len(other.cuts.all) != 1 || e.limit+other.given != limit {
			t.Fatalf("%d bytes, and %d in %d regions, of %d", e.limit, other.given, len(other.cuts.all), limit)
		}
	}
}
