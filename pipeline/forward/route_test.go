package forward

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// roundings is what a weight may be off: it is rounded to float32, and so are the exponentials that it comes from.
const roundings = 2e-7

func TestRoute(t *testing.T) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	e := math.Exp
	for _, c := range []struct {
		name               string
		experts            arch.Experts
		scores, correction []float32
		chosen             []int32
		weights            []float64
	}{
		{
			"softmax", arch.Experts{Scoring: arch.Softmax, TopK: 2}, []float32{0, 2, 1, -1}, nil,
			[]int32{1, 2}, []float64{e(2) / (1 + e(2) + e(1) + e(-1)), e(1) / (1 + e(2) + e(1) + e(-1))},
		},
		{
			"normalized and scaled", arch.Experts{Scoring: arch.Softmax, TopK: 2, Normalize: true, Scale: 3}, []float32{0, 2, 1, -1}, nil,
			[]int32{1, 2}, []float64{3 * e(2) / (e(2) + e(1)), 3 * e(1) / (e(2) + e(1))},
		},
		{
			"softmax of the largest", arch.Experts{Scoring: arch.TopKSoftmax, TopK: 3}, []float32{0, 2, 1, -1}, nil,
			[]int32{1, 2, 0}, []float64{e(2) / (1 + e(2) + e(1)), e(1) / (1 + e(2) + e(1)), 1 / (1 + e(2) + e(1))},
		},
		{ // 1 is too far from 2.5 and from 2, 1.5 is not
			"sparse mixer", arch.Experts{Scoring: arch.SparseMixer, TopK: 2, Near: .45}, []float32{2, 1.5, 1, 2.5, -3}, nil,
			[]int32{3, 0}, []float64{1 / (1 + e(-.5) + e(-1)), 1 / (1 + e(-.5))},
		},
		{ // below 0 a score is measured by itself: 1 is 1/2 of -2
			"sparse mixer of negative scores", arch.Experts{Scoring: arch.SparseMixer, TopK: 2, Near: .6}, []float32{-5, -1, -2}, nil,
			[]int32{1, 2}, []float64{1 / (1 + e(-1)), 1 / (1 + e(-3))},
		},
		{
			"ties take the first", arch.Experts{Scoring: arch.Sigmoid, TopK: 2}, []float32{1, 3, 1, 1}, nil,
			[]int32{1, 0}, []float64{sigmoid(3), sigmoid(1)},
		},
		{ // the third expert is chosen because of its correction, and weighs as without
			"correction", arch.Experts{Scoring: arch.Sigmoid, TopK: 2, Normalize: true, Epsilon: 0.5}, []float32{1, 0, -2, 0}, []float32{0, 0, 1, 0},
			[]int32{2, 0}, []float64{sigmoid(-2) / (sigmoid(-2) + sigmoid(1) + .5), sigmoid(1) / (sigmoid(-2) + sigmoid(1) + .5)},
		},
		{ // groups are worth .9+.1, .6+.5 and .7+.0 here: expert 0 is the best, and its group is not
			"groups", arch.Experts{Scoring: arch.TopKSoftmax, TopK: 2, Groups: 3, TopGroups: 1, GroupTop: 2}, []float32{.9, .1, .6, .5, .7, 0}, nil,
			[]int32{2, 3}, []float64{e(.6) / (e(.6) + e(.5)), e(.5) / (e(.6) + e(.5))},
		},
		{
			"groups by their best", arch.Experts{Scoring: arch.Sigmoid, TopK: 2, Groups: 3, TopGroups: 2, GroupTop: 1}, []float32{.9, .1, .6, .5, .7, 0}, nil,
			[]int32{0, 4}, []float64{sigmoid(.9), sigmoid(.7)},
		},
		{ // all groups are worth the same
			"ties of groups", arch.Experts{Scoring: arch.Sigmoid, TopK: 3, Groups: 3, TopGroups: 2, GroupTop: 2}, []float32{1, 2, 2, 1, 1, 2}, nil,
			[]int32{1, 2, 0}, []float64{sigmoid(2), sigmoid(2), sigmoid(1)},
		},
		{ // the correction chooses the group too; scores below 0 are chosen before other groups
			"correction of groups", arch.Experts{Scoring: arch.Sigmoid, TopK: 2, Groups: 2, TopGroups: 1, GroupTop: 2}, []float32{5, 5, 1, 0}, []float32{-3, -3, -1, -2},
			[]int32{2, 3}, []float64{sigmoid(1), sigmoid(0)},
		},
		{"no numbers", arch.Experts{Scoring: arch.Softmax, TopK: 2}, []float32{0, float32(math.NaN()), 1}, nil, []int32{0, 1}, []float64{math.NaN(), math.NaN()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			chosen, weights := make([]int32, c.experts.TopK), make([]float32, c.experts.TopK)
			experts{&c.experts}.route(slices.Clone(c.scores), c.correction, chosen, weights, new(buffer))
			if diff := cmp.Diff(c.chosen, chosen); diff != "" {
				t.Errorf("chosen (-want +got):\n%s", diff)
			}
			for i, want := range c.weights {
				if got := float64(weights[i]); !(math.Abs(got-want) <= roundings*want) && !(math.IsNaN(got) && math.IsNaN(want)) {
					t.Errorf("weight %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// The list of members has every choice once, by experts and then by tokens.
func TestMembers(t *testing.T) {
	e := experts{&arch.Experts{TopK: 2, Experts: make([]arch.MLP, 4)}}
	choices, ends := e.members([]int32{3, 1, 1, 0, 3, 0})
	if diff := cmp.Diff([]int32{3, 5, 1, 2, 0, 4}, choices); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int32{2, 4, 4, 6}, ends[:4]); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
}
