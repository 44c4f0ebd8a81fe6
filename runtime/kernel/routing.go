package kernel

import (
	"math"
	"slices"
)

// Scoring is what becomes of the scores of experts.
type Scoring uint8

// The scorings: before the choice scores are left as they are, or get their softmax, or each its sigmoid; or those of the chosen get their
// softmax afterwards.
const (
	ScorePlain Scoring = iota
	ScoreSoftmax
	ScoreSigmoid
	ScoreTopKSoftmax
)

// Routing chooses the experts of a token by their scores.
type Routing struct {
	TopK           int
	Scoring        Scoring
	Normalize      bool    // divides weights by their sum and Epsilon
	Epsilon, Scale float64 // Scale multiplies weights
	// With Groups > 1 only experts of the TopGroups best groups can be chosen. Groups are ranked by the sum of their GroupTop best experts.
	Groups, TopGroups, GroupTop int
}

// Choose writes the TopK best experts to chosen, those with the largest sum of score and correction [experts], or nil. It leaves in scores
// [experts] what Weigh takes. Ties between experts or groups go to the first. It reports false where fewer are numbers: chosen is arbitrary then.
// free is memory for experts and groups.
func (r *Routing) Choose(chosen []int32, scores, correction, free []float32) bool {
	switch r.Scoring {
	case ScoreSoftmax:
		Softmax(scores)
	case ScoreSigmoid:
		for i, x := range scores {
			scores[i] = float32(1 / (1 + Exp(-float64(x))))
		}
	}
	good := free[:len(scores)]
	copy(good, scores)
	if correction != nil {
		Add(good, good, correction)
	}
	if r.Groups > 1 {
		r.restrict(good, free[len(scores):][:r.Groups])
	}
	return len(TopK(chosen, good, r.TopK)) == r.TopK
}

// restrict gives the experts outside the best groups the lowest scores.
func (r *Routing) restrict(good, groups []float32) {
	size := len(good) / r.Groups
	var best []int32
	for g := range groups {
		of := good[g*size : (g+1)*size]
		groups[g] = 0
		best = TopK(best, of, r.GroupTop)
		for _, j := range best {
			groups[g] += of[j]
		}
	}
	keep := make([]bool, r.Groups)
	for _, g := range TopK(best, groups, r.TopGroups) {
		keep[g] = true
	}
	for g, ok := range keep {
		for j := g * size; j < (g+1)*size && !ok; j++ {
			good[j] = float32(math.Inf(-1))
		}
	}
}

// Weigh writes the weights of the chosen, and leaves in their scores those from before Normalize and Scale.
func (r *Routing) Weigh(weights, scores []float32, chosen []int32) {
	sum := 0.0
	for i, j := range chosen {
		weights[i] = scores[j]
		sum += float64(scores[j])
	}
	if r.Scoring == ScoreTopKSoftmax {
		Softmax(weights)
		sum = 1
		for i, j := range chosen {
			scores[j] = weights[i]
		}
	}
	factor := r.Scale
	if r.Normalize {
		factor /= sum + r.Epsilon
	}
	for i, w := range weights {
		weights[i] = float32(float64(w) * factor)
	}
}

// Unweighted is what a token whose scores are not numbers gets: the first experts, and weights that are not numbers.
func Unweighted(chosen []int32, weights []float32) {
	for i := range chosen {
		chosen[i], weights[i] = int32(i), float32(math.NaN())
	}
}

// ExpertsStep is a mixture of experts without those that all tokens share: Dst [Rows, hidden] is the sum over the chosen experts, in the order of
// their numbers and from 0 on, of weight · (SiLU(Src · Gateᵀ) * (Src · Upᵀ)) · Downᵀ.
type ExpertsStep struct {
	Dst, Src, Scores  int // Scores [Rows, experts] are arbitrary afterwards
	Routing           Routing
	Correction, Gains Factor // vectors of all experts, or without Data; Gains multiply weights
	Wide              int    // rows of Gate and Up
	Gate, Up, Down    []Factor
}

func (*ExpertsStep) step() {}

// multiplications are those of so many rows.
func (x *ExpertsStep) multiplications(rows, hidden int) int {
	return 3 * rows * x.Routing.TopK * x.Wide * hidden
}

// do computes the step of so many rows of `hidden` elements.
func (x *ExpertsStep) do(dst, src, scores []float32, rows, hidden int) {
	r, count := &x.Routing, len(x.Gate)
	chosen, weights := make([]int32, rows*r.TopK), make([]float32, rows*r.TopK)
	free := make([]float32, count+max(r.Groups, 1))
	for i := range rows {
		at, w, s := chosen[i*r.TopK:(i+1)*r.TopK], weights[i*r.TopK:(i+1)*r.TopK], scores[i*count:(i+1)*count]
		if r.Choose(at, s, x.Correction.Data, free) {
			r.Weigh(w, s, at)
		} else {
			Unweighted(at, w)
		}
		for c, j := range at {
			if x.Gains.Data != nil {
				w[c] *= x.Gains.Data[j]
			}
		}
	}
	clear(dst)
	for j := range count {
		var mine []int
		var in []float32
		for c, expert := range chosen {
			if int(expert) == j {
				mine, in = append(mine, c), append(in, src[c/r.TopK*hidden:][:hidden]...)
			}
		}
		n := len(mine)
		if n == 0 {
			continue
		}
		inner, up, out := make([]float32, n*x.Wide), make([]float32, n*x.Wide), make([]float32, n*hidden)
		x.Gate[j].packed(x.Wide, hidden).MulT(inner, in, n, x.Wide, hidden, 0, x.Wide)
		x.Up[j].packed(x.Wide, hidden).MulT(up, in, n, x.Wide, hidden, 0, x.Wide)
		SiLU(inner, inner)
		Mul(inner, inner, up)
		x.Down[j].packed(hidden, x.Wide).MulT(out, inner, n, hidden, x.Wide, 0, hidden)
		for i, c := range mine {
			row, y := dst[c/r.TopK*hidden:][:hidden], out[i*hidden:(i+1)*hidden]
			Scale(y, y, weights[c])
			Add(row, row, y)
		}
	}
}

// packed is a factor [n, k] in rows or panels.
func (f *Factor) packed(n, k int) *Packed {
	p := &Packed{panels: f.Data, rows: n, cols: k}
	if f.Read != nil {
		f.Read(0, n, func(panels []float32) bool { p.panels = slices.Clone(panels); return true })
	}
	if f.Layout == ByRow {
		p = &Packed{}
		p.Pack(f.Data, n, k, f.Stride)
	}
	return p
}
