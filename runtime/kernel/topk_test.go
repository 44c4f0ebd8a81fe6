package kernel

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// sortedTopK sorts everything.
func sortedTopK(row []float32, k int) []int32 {
	var all []int32
	for i, v := range row {
		if v == v {
			all = append(all, int32(i))
		}
	}
	slices.SortStableFunc(all, func(i, j int32) int { return cmp.Compare(row[j], row[i]) })
	return all[:min(max(k, 0), len(all))]
}

func checkTopK(t *testing.T, row []float32, k int) {
	t.Helper()
	got, want := TopK(make([]int32, 3), row, k), sortedTopK(row, k)
	if !slices.Equal(got, want) {
		t.Fatalf("%d of %d: %v, want %v", k, len(row), got, want)
	}
}

func TestTopK(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(71, 72))
		for n := range 2*64 + 2 {
			for _, k := range []int{-1, 0, 1, 2, 5, n / 2, n - 1, n, n + 1} {
				checkTopK(t, spiced(r, n, 1<<30), k)
				checkTopK(t, spiced(r, n, 3), k)
			}
		}
		row := make([]float32, 20000)
		for _, f := range []func(i int) float32{
			func(i int) float32 { return float32(i) },
			func(i int) float32 { return -float32(i) },
			func(i int) float32 { return float32(r.IntN(50)) },
			func(i int) float32 { return float32(r.NormFloat64()) },
			func(i int) float32 { return 7 },
			func(i int) float32 { return float32(math.NaN()) },
			func(i int) float32 { return float32(math.Inf(1 - 2*(i%2))) },
		} {
			for i := range row {
				row[i] = f(i)
			}
			for _, k := range []int{1, 40, 5000, len(row)} {
				checkTopK(t, row, k)
			}
		}
	})
	row, dst := random(rand.New(rand.NewPCG(1, 2)), 1000), make([]int32, 0, 50)
	if n := testing.AllocsPerRun(10, func() { TopK(dst, row, 50) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzTopK(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 192, 127, 0, 0, 128, 255}, uint16(2))
	f.Fuzz(func(t *testing.T, data []byte, k uint16) {
		row := floats(data)
		forEachImpl(t, func(t *testing.T) { checkTopK(t, row, int(k)) })
	})
}
