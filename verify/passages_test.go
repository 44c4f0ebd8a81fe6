package verify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/about"
)

// The list has the largest divergences, the largest first, none of them near another one in the same window.
func TestPassages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var list passages
		largest := 0.0
		for window := range 3 {
			for at := range 200 {
				kl := rng.Float64()
				largest = max(largest, kl)
				if list.wants(window, at, kl) {
					list.add(passage{window: window, position: at, kl: kl})
				}
			}
		}
		if len(list) > passageCount || len(list) < passageCount/2 || list[0].kl != largest {
			t.Fatalf("%d passages, the first with %g of %g", len(list), list[0].kl, largest)
		}
		for i, p := range list {
			for _, q := range list[i+1:] {
				if q.kl > p.kl || p.near(q.window, q.position) {
					t.Fatalf("%+v comes before %+v", p, q)
				}
			}
		}
	}
	if (passages{}).wants(0, 0, 0) {
		t.Error("a position without divergence is wanted")
	}
}

func TestMost(t *testing.T) {
	r := newRow([]float32{1, 3, 2, 3, float32(math.Inf(-1))})
	list := r.most(3)
	var ids []int32
	sum := 0.0
	for _, l := range list {
		ids = append(ids, l.token)
		sum += l.probability
	}
	if diff := cmp.Diff([]int32{1, 3, 2}, ids); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if rest := math.Exp(1 - r.norm); math.Abs(sum+rest-1) > 1e-6 || list[0].probability != list[1].probability {
		t.Errorf("probabilities %+v, and %g of the fourth", list, rest)
	}
	if n := len(newRow([]float32{1}).most(4)); n != 1 {
		t.Errorf("%d tokens of a vocabulary of one", n)
	}
}

func TestRanges(t *testing.T) {
	s := sampleOf([]float64{1, 2, 3}, []float64{3, 4, 5})
	want := []about.DivergenceRange{{From: 10, To: 10, Mean: 2, High: 3}, {From: 11, To: 11, Mean: 3, High: 4}, {From: 12, To: 12, Mean: 4, High: 5}}
	if diff := cmp.Diff(want, s.ranges(10)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	long := sampleOf(make([]float64, 100), make([]float64, 100))
	list := long.ranges(0)
	if len(list) != positionRanges || list[0].From != 0 || list[len(list)-1].To != 99 {
		t.Errorf("%+v", list)
	}
	for i := 1; i < len(list); i++ {
		if list[i].From != list[i-1].To+1 {
			t.Errorf("%+v follows %+v", list[i], list[i-1])
		}
	}
	if got := sampleOf().ranges(0); got != nil {
		t.Errorf("nothing gives %+v", got)
	}
}

func TestWorst(t *testing.T) {
	var list []about.OpError
	for i := range 40 {
		list = append(list, about.OpError{Tensor: string(rune('a' + i)), WeightError: float64(i % 20)})
	}
	list = append(list, list[39])
	got := worst(list)
	if len(got) != worstMatrices || got[0].WeightError != 19 || got[0].Tensor == got[1].Tensor {
		t.Errorf("%+v", got)
	}
}
