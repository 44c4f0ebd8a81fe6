package corpus

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestShares(t *testing.T) {
	for name, tc := range map[string]struct {
		weights []float64
		n       int
		want    []int
	}{
		"one":               {[]float64{3}, 5, []int{5}},
		"equal":             {[]float64{1, 1, 1}, 7, []int{3, 2, 2}},
		"largest remainder": {[]float64{1, 2, 4}, 10, []int{1, 3, 6}},
		"nothing left":      {[]float64{1, 0, 0}, 2, []int{2, 0, 0}},
		"no weight":         {[]float64{0, 0}, 2, []int{0, 0}},
		"few windows":       {[]float64{1, 1.5, 1}, 1, []int{0, 1, 0}},
		"tiny":              {[]float64{1e-9, 1e9}, 3, []int{0, 3}},
	} {
		if d := cmp.Diff(tc.want, shares(tc.weights, tc.n)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		weights := make([]float64, 1+r.IntN(9))
		for i := range weights {
			weights[i] = r.ExpFloat64() + 1e-9
		}
		n, sum := r.IntN(100), 0
		for _, p := range shares(weights, n) {
			sum += p
		}
		if sum != n {
			t.Fatalf("%v: %d of %d", weights, sum, n)
		}
	}
}

func TestSpread(t *testing.T) {
	all := make([]int, 100)
	for i := range all {
		all[i] = i
	}
	for _, n := range []int{0, 1, 3, 7, 50, 99, 100} {
		for seed := range uint64(20) {
			got := spread(all, n, rand.NewPCG(seed, 1))
			if len(got) != n {
				t.Fatal(got)
			}
			for k := 1; k < n; k++ {
				if gap := got[k] - got[k-1]; gap < 100/n || gap > (100+n-1)/n {
					t.Errorf("%d of 100: %v", n, got)
				}
			}
		}
	}
	// Held still, because a recipe says a seed and means these windows.
	if d := cmp.Diff([]int{15, 35, 55, 75, 95}, spread(all, 5, rand.NewPCG(1, 2))); d != "" {
		t.Error(d)
	}
}
