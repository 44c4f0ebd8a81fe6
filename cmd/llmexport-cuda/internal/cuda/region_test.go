package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestRegions cuts buffers from regions, with the bits of the CPU. What the engine counts is what the driver gave, within the limit.
func TestRegions(t *testing.T) {
	e := engine(t)
	e.cuts.size = 1 << 18
	whole, given := *e.driver, map[uint64]uint64{}
	counted := whole
	counted.alloc = func(p *uint64, n uint64) int32 {
		rc := whole.alloc(p, n)
		given[*p] = n
		return rc
	}
	counted.free = func(p uint64) int32 {
		delete(given, p)
		return whole.free(p)
	}
	e.driver = &counted
	r := rand.New(rand.NewPCG(21, 0))
	var weights []kernel.Factor
	var sides [][2]int
	for range 100 {
		n, k := 1+r.IntN(60), 4*(1+r.IntN(20))
		weights = append(weights, kernel.Factor{Data: floats(r, n*k, false), Layout: kernel.ByRow, Stride: k, Version: kernel.NewVersion()})
		sides = append(sides, [2]int{n, k})
	}
	most := 0
	for i := range 120 {
		if i == 60 { // less than regions and weights have by now
			e.limit = e.used() / 2
		}
		at := r.IntN(len(weights))
		m, n, k := 1+r.IntN(40), sides[at][0], sides[at][1]
		a := floats(r, m*k, false)
		got, want := make([]float32, m*n), make([]float32, m*n)
		kernel.MatMulT(want, a, weights[at].Data, m, n, k, n, k, k)
		done := e.Compute(&kernel.Product{Dst: got, Rows: m, Cols: n, Stride: n, Parts: []kernel.Part{part(a, kernel.ByRow, k, weights[at], k)}})
		if e.Err() != nil || !done && i < 60 || done && differ(got, want) > 0 {
			t.Fatalf("product %d: done %v, %d elements differ, %v", i, done, differ(got, want), e.Err())
		}
		if i%30 == 29 {
			e.empty()
		}
		counts, driver := e.used()+e.idleBytes(), uint64(0)
		for _, b := range e.scratch() {
			counts += b.size
		}
		for _, n := range given {
			driver += n
		}
		if counts > driver || driver-counts > 1<<16 { // buffers begin at multiples of 256
			t.Fatalf("product %d: the driver gave %d bytes, %d are counted", i, driver, counts)
		}
		idle := uint64(0)
		for size, list := range e.idle {
			for _, at := range list {
				if e.cuts.has(at) {
					idle += size
				}
			}
		}
		if idle != e.cuts.idle {
			t.Fatalf("product %d: %d bytes of regions wait, %d are counted", i, idle, e.cuts.idle)
		}
		if most = max(most, len(e.cuts.all)); driver > e.limit && i < 60 {
			t.Fatalf("product %d: %d bytes of %d", i, driver, e.limit)
		}
	}
	if most < 2 || uint64(most)*e.cuts.size > 1<<33/regionShare {
		t.Errorf("%d regions", most)
	}
}

// TestLimit makes buffers larger: the driver never gives more than the limit, also while those that they replace wait to be used again.
func TestLimit(t *testing.T) {
	e := engine(t)
	e.limit = 6 << 20
	whole, most := *e.driver, uint64(0)
	counted := whole
	counted.alloc = func(p *uint64, n uint64) int32 {
		most = max(most, e.given+n)
		return whole.alloc(p, n)
	}
	e.driver = &counted
	for _, n := range []uint64{3, 5, 2, 6} {
		if !e.room(map[*buffer]uint64{&e.a: n << 20}) {
			t.Fatalf("no room for %d of 6 MiB: %v", n, e.Err())
		}
	}
	if e.empty(); most > e.limit || e.given != 0 {
		t.Errorf("%d bytes were given, %d after all has been given back", most, e.given)
	}
}
