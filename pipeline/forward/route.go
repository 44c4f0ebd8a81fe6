package forward

import (
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// route chooses the experts of a token by its scores, which it changes: chosen and weights have TopK elements. Ties between
// experts or groups go to the first. NaN scores give NaN weights.
func (e experts) route(scores, correction []float32, chosen []int32, weights []float32, b *buffer) {
	switch e.Scoring {
	case arch.Softmax:
		kernel.Softmax(scores)
	case arch.Sigmoid:
		for i, x := range scores {
			scores[i] = float32(sigmoid(float64(x)))
		}
	}
	good, groups := cut(grow(&b.floats, len(scores)+max(e.Groups, 1)), len(scores))
	copy(good, scores)
	if correction != nil {
		kernel.Add(good, good, correction)
	}
	if e.Groups > 1 {
		e.restrict(good, groups)
	}
	if len(kernel.TopK(chosen, good, e.TopK)) < e.TopK {
		for i := range chosen {
			chosen[i], weights[i] = int32(i), float32(math.NaN())
		}
		return
	}
	if e.Scoring == arch.SparseMixer {
		e.mix(scores, chosen)
	}
	sum := 0.0
	for i, j := range chosen {
		weights[i] = scores[j]
		sum += float64(scores[j])
	}
	if e.Scoring == arch.TopKSoftmax {
		kernel.Softmax(weights)
		sum = 1
	}
	factor := 1.0
	if e.Scale != 0 {
		factor = e.Scale
	}
	if e.Normalize {
		factor /= sum + e.Epsilon
	}
	for i, w := range weights {
		weights[i] = float32(float64(w) * factor)
	}
}

// mix turns the scores of the chosen experts into their weights.
func (e experts) mix(scores []float32, chosen []int32) {
	var weights [2]float32
	for i, c := range chosen {
		m, sum := float64(scores[c]), 0.0
		for j, s := range scores {
			x := float64(s)
			if slices.Contains(chosen[:i], int32(j)) || m-x > e.Near*max(math.Abs(x), m) {
				continue
			}
			sum += kernel.Exp(x - m)
		}
		weights[i] = float32(1 / sum)
	}
	for i, c := range chosen {
		scores[c] = weights[i]
	}
}

// restrict gives the experts outside the best groups the lowest scores.
func (e experts) restrict(good, groups []float32) {
	size := len(good) / e.Groups
	var best []int32
	for g := range groups {
		of := good[g*size : (g+1)*size]
		groups[g] = 0
		best = kernel.TopK(best, of, e.GroupTop)
		for _, j := range best {
			groups[g] += of[j]
		}
	}
	keep := make([]bool, e.Groups)
	for _, g := range kernel.TopK(best, groups, e.TopGroups) {
		keep[g] = true
	}
	for g, ok := range keep {
		for j := g * size; j < (g+1)*size && !ok; j++ {
			good[j] = float32(math.Inf(-1))
		}
	}
}
