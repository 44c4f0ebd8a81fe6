package forward

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// routing holds the choices of a group.
type routing struct {
	read   []float32 // by the router
	x      []float32 // read by the experts
	raw    []float32 // scores of the router, if they are kept
	scores []float32 // what route leaves of them
	gains  []float32 // or nil
	// weights has TopK elements for every token, gains included.
	weights []float32
	chosen  []int32
	// choices are indices into chosen, sorted by expert, and within one in the order of the tokens: those of expert j end before
	// ends[j].
	choices, ends []int32
}

// of returns the choices of expert j.
func (r *routing) of(j int) []int32 {
	if j == 0 {
		return r.choices[:r.ends[0]]
	}
	return r.choices[r.ends[j-1]:r.ends[j]]
}

// weightsOf returns the weights of some choices.
func (r *routing) weightsOf(choices []int32) []float32 {
	w := make([]float32, len(choices))
	for i, c := range choices {
		w[i] = r.weights[c]
	}
	return w
}

// choose routes the tokens of a group. If keep is set, it keeps the scores and what the router reads.
func (e experts) choose(ctx context.Context, s *space, x []float32, keep bool) (*routing, error) {
	n, count, hidden := s.tokens(), len(e.Experts), e.Router.Weight.Cols
	r := &routing{read: x, x: x, weights: s.take(e.TopK), chosen: make([]int32, n*e.TopK)}
	var normed []float32
	if e.RouterNorm != nil || e.Norm != nil {
		normed = s.take(hidden)
	}
	if e.RouterNorm != nil {
		r.read = normed
		if err := s.norm(r.read, x, e.RouterNorm); err != nil {
			return nil, err
		}
	}
	var err error
	if r.scores, err = s.project(ctx, r.read, &e.Router); err != nil {
		return nil, err
	}
	if e.Norm != nil {
		if keep {
			normed = s.take(hidden)
		}
		r.x = normed
		if err := s.norm(r.x, x, e.Norm); err != nil {
			return nil, err
		}
	}
	v, err := s.vectors(e.Correction, e.Gains)
	if err != nil {
		return nil, err
	}
	if keep {
		r.raw = s.clone(r.scores)
	}
	r.gains = v[1]
	if err := s.each(ctx, n, func(i int, b *buffer) error {
		at, end := i*e.TopK, (i+1)*e.TopK
		e.route(r.scores[i*count:(i+1)*count], v[0], r.chosen[at:end], r.weights[at:end], b)
		for c := at; c < end && r.gains != nil; c++ {
			r.weights[c] *= r.gains[r.chosen[c]]
		}
		return nil
	}); err != nil {
		return nil, err
	}
	r.choices, r.ends = e.members(r.chosen)
	return r, nil
}

// members sorts choices by expert, and within one in the order of the tokens: those of expert j end before ends[j]. A choice is
// an index into chosen.
func (e experts) members(chosen []int32) (choices, ends []int32) {
	choices, ends = make([]int32, len(chosen)), make([]int32, len(e.Experts)+1)
	for _, j := range chosen {
		ends[j+1]++
	}
	for j := range e.Experts {
		ends[j+1] += ends[j]
	}
	for c, j := range chosen {
		choices[ends[j]] = int32(c)
		ends[j]++
	}
	return choices, ends
}

// routing is what a device has to know of the choice.
func (e experts) routing() kernel.Routing {
	r := kernel.Routing{TopK: e.TopK, Normalize: e.Normalize, Epsilon: e.Epsilon, Scale: cmp.Or(e.Scale, 1),
		Groups: e.Groups, TopGroups: e.TopGroups, GroupTop: e.GroupTop}
	switch e.Scoring {
	case arch.Softmax:
		r.Scoring = kernel.ScoreSoftmax
	case arch.Sigmoid:
		r.Scoring = kernel.ScoreSigmoid
	case arch.TopKSoftmax:
		r.Scoring = kernel.ScoreTopKSoftmax
	}
	return r
}

// route chooses the experts of a token by its scores: chosen and weights have TopK elements. It leaves the weights from before
// Normalize and Scale in the scores of the chosen, for Softmax the probabilities of all experts. Ties between experts or groups go
// to the first. NaN scores give NaN weights.
func (e experts) route(scores, correction []float32, chosen []int32, weights []float32, b *buffer) {
	r := e.routing()
	if !r.Choose(chosen, scores, correction, grow(&b.floats, len(scores)+max(e.Groups, 1))) {
		kernel.Unweighted(chosen, weights)
		return
	}
	if e.Scoring == arch.SparseMixer {
		e.mix(scores, chosen)
	}
	r.Weigh(weights, scores, chosen)
}

// mix turns the scores of the chosen experts into their weights.
func (e experts) mix(scores []float32, chosen []int32) {
	var weights [2]float32
	for i, c := range chosen {
		m, sum := float64(scores[c]), 0.0
		for j, s := range scores {
			if e.mixes(m, float64(s), int32(j), chosen[:i]) {
				sum += kernel.Exp(float64(s) - m)
			}
		}
		weights[i] = float32(1 / sum)
	}
	for i, c := range chosen {
		scores[c] = weights[i]
	}
}

// mixes reports whether expert j with the score x is among those that the weight of a choice with the score m is a share of:
// not chosen before, and near.
func (e experts) mixes(m, x float64, j int32, before []int32) bool {
	return !slices.Contains(before, j) && !(m-x > e.Near*max(math.Abs(x), m))
}

// backScores returns the gradients of the scores of the router, for those of the weights. The choice has none.
func (e experts) backScores(s *space, r *routing, dWeights []float32) []float32 {
	count, d := len(e.Experts), make([]float32, len(r.scores))
	kernel.Parallel(s.threads, s.tokens(), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			at, row := i*e.TopK, i*count
			chosen, dw := r.chosen[at:at+e.TopK], dWeights[at:at+e.TopK]
			for c, j := range chosen {
				if r.gains != nil {
					dw[c] *= r.gains[j]
				}
			}
			e.routeBack(d[row:row+count], r.raw[row:row+count], r.scores[row:row+count], chosen, dw)
		}
	})
	return d
}

// routeBack writes the gradients of the scores of a token to d, which has zeros: raw are the scores, scores what route has left
// of them, and dw the gradients of the weights. Those of SparseMixer are as of Softmax, for each choice over the experts that its
// value is a share of.
func (e experts) routeBack(d, raw, scores []float32, chosen []int32, dw []float32) {
	r, dv := e.routing(), make([]float64, len(chosen))
	r.WeighBack(dv, scores, chosen, dw)
	if e.Scoring != arch.SparseMixer {
		r.ChooseBack(d, scores, chosen, dv)
		return
	}
	for i, c := range chosen {
		m, v := float64(raw[c]), float64(scores[c])
		for j, x := range raw {
			if e.mixes(m, float64(x), int32(j), chosen[:i]) {
				d[j] -= float32(float64(dv[i]*v) * float64(kernel.Exp(float64(x)-m)*v))
			}
		}
		d[c] += float32(dv[i] * v)
	}
}
