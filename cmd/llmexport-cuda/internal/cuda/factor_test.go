package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestFactor compares inverses of factors with those of the CPU, bit by bit, and refuses what has none.
func TestFactor(t *testing.T) {
	e := engine(t)
	for s := range *shapes {
		r := rand.New(rand.NewPCG(13, uint64(s)))
		n := 4 * (1 + r.IntN(110))
		if s == 0 {
			n = 3 * factorColumns
		}
		a := floats(r, n*n, false)
		for i := range n {
			for j := range i {
				a[i*n+j] = float32(math.Max(-1, math.Min(1, float64(a[i*n+j]))))
			}
			a[i*n+i] = float32(n) * (1 + r.Float32())
		}
		got, want := quant.NewFactoring(slices.Clone(a), n), quant.NewFactoring(slices.Clone(a), n)
		got.Version = uint64(s%2) * kernel.NewVersion()
		if !quant.Factor(want, 1) || !e.Compute(got) {
			t.Fatalf("matrix %d [%d, %d]: not computed, %v", s, n, n, e.Err())
		}
		for i := range n {
			to := min(i/factorColumns*factorColumns+factorColumns, n)
			if bad := differ(got.A[i*n:i*n+to], want.A[i*n:i*n+to]); bad > 0 {
				t.Fatalf("matrix %d [%d, %d]: %d elements of row %d differ", s, n, n, bad, i)
			}
		}
		if stays := e.kept.of[got.Version] != nil; stays != (got.Version != 0) {
			t.Errorf("matrix %d, version %d: the factor stays %v", s, got.Version, stays)
		}
		a[(n-1)*n+n-1] = -1
		none := quant.NewFactoring(a, n)
		none.Version = uint64(s%2) * kernel.NewVersion()
		if e.Compute(none) || e.Err() != nil || e.kept.of[none.Version] != nil {
			t.Errorf("matrix %d: a matrix that is not positive definite has a factor, or the card failed: %v", s, e.Err())
		}
	}
	if e.Compute(quant.NewFactoring(make([]float32, 9), 3)) || e.Err() != nil {
		t.Errorf("3 columns: %v", e.Err())
	}
	tight := engine(t)
	tight.limit = 1 << 19
	if !tight.room(map[*buffer]uint64{&tight.b: tight.limit}) {
		t.Fatal(tight.Err())
	}
	f := quant.NewFactoring(definite(64), 64)
	f.Version = kernel.NewVersion()
	if !tight.Compute(f) || tight.Err() != nil || len(tight.kept.of) > 0 {
		t.Errorf("with little memory: %v, and %d factors stay", tight.Err(), len(tight.kept.of))
	}
	e.Bound(1 << 10)
	f = quant.NewFactoring(make([]float32, 64*64), 64)
	f.Version = kernel.NewVersion()
	if e.Compute(f) || e.Err() != nil {
		t.Errorf("without memory: %v", e.Err())
	}
}
