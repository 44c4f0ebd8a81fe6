package lower

import (
	"fmt"
	"strconv"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// experts lowers a mixture of experts: a router made of ordinary ops, the MoE op, which calls a subgraph for every expert, and
// the shared expert.
func (b *builder) experts(i int, p string, e *arch.Experts, x value) (value, error) {
	if err := checkExperts(e); err != nil {
		return 0, err
	}
	hidden, in := int32(e.Router.Weight.Cols), x
	if e.RouterNorm != nil {
		in = b.norm(p+"router/norm", x, e.RouterNorm)
	}
	weights, choice := b.route(p+"router/", e, in)
	if e.Gains.Tensor != "" {
		gains := b.gather(p+"router/gains_of_chosen", b.constant(p+"router/gains", e.Gains), choice)
		weights = b.binary(p+"router/gained", mnn.BinaryMul, weights, gains)
	}
	if e.Norm != nil {
		x = b.norm(p+"norm", x, e.Norm)
	}
	rows := b.reshape(p+"rows", x, -1, hidden)
	if e.ScaleInput {
		rows = b.binary(p+"scaled", mnn.BinaryMul, rows, weights)
		weights = b.allOnes(p+"router/ones", weights)
	}
	moe := &mnn.MoE{Layer: int32(i), Experts: int32(len(e.Experts)), TopK: int32(e.TopK)}
	y := b.op(p+"MoE", mnn.OpMoE, moe, rows, weights, choice)
	y = b.reshape(p+"MoE/rows", y, 1, -1, hidden)
	if err := b.expertGraphs(p, moe, e.Experts, int(hidden)); err != nil {
		return 0, err
	}
	if e.Shared == nil {
		return y, nil
	}
	s, err := b.mlp(p+"shared_expert/", e.Shared, x)
	if err != nil {
		return 0, fmt.Errorf("shared expert: %w", err)
	}
	if e.SharedGate.Weight.Tensor != "" {
		gate := b.linear(p+"shared_expert_gate/Linear", x, &e.SharedGate, Slot{Fine: true}, 1, -1, 1)
		s = b.binary(p+"shared_expert/gated", mnn.BinaryMul, b.unary(p+"shared_expert_gate/sigmoid", mnn.UnarySigmoid, gate), s)
	}
	return b.binary(p+"sum", mnn.BinaryAdd, y, s), nil
}

// route returns the weights and the indices of the chosen experts, [tokens, TopK].
func (b *builder) route(p string, e *arch.Experts, x value) (weights, choice value) {
	n := int32(len(e.Experts))
	logits := b.linear(p+"Linear", x, &e.Router, Slot{Fine: true}, -1, n)
	if e.Scoring == arch.SparseMixer {
		best, choice := b.topK(p+"top", logits, e.TopK)
		return b.weigh(p, e, b.sparseMixer(p, e, logits, best)), choice
	}
	plain := e.Correction.Tensor == "" && e.Groups <= 1
	if plain && e.Scoring != arch.Softmax {
		// Logits have the same order as their sigmoids and do not saturate.
		weights, choice = b.topK(p+"top", logits, e.TopK)
		weights = b.score(p, e.Scoring, weights)
		return b.weigh(p, e, weights), choice
	}
	scores := logits
	if e.Scoring != arch.TopKSoftmax {
		scores = b.score(p, e.Scoring, logits)
	}
	if plain {
		weights, choice = b.topK(p+"top", scores, e.TopK)
		return b.weigh(p, e, weights), choice
	}
	ranks := scores
	if e.Correction.Tensor != "" {
		ranks = b.binary(p+"corrected", mnn.BinaryAdd, ranks, b.constant(p+"correction", e.Correction, 1, n))
	}
	if e.Groups > 1 {
		ranks = b.group(p+"group", e, ranks)
	}
	_, choice = b.topK(p+"top", ranks, e.TopK)
	weights = b.op(p+"chosen", mnn.OpGatherElements, nil, scores, choice, b.scalar(1))
	if e.Scoring == arch.TopKSoftmax {
		weights = b.score(p, e.Scoring, weights)
	}
	return b.weigh(p, e, weights), choice
}

// score applies the scoring to the logits of a row.
func (b *builder) score(p string, s arch.Scoring, x value) value {
	if s == arch.Sigmoid {
		return b.unary(p+"sigmoid", mnn.UnarySigmoid, x)
	}
	return b.op(p+"softmax", mnn.OpSoftmax, &mnn.Axis{Axis: -1}, x)
}

// sparseMixer returns the weights of the two best experts, given their logits best [tokens, 2].
func (b *builder) sparseMixer(p string, e *arch.Experts, logits, best value) value {
	magnitude := b.unary(p+"magnitude", mnn.UnaryAbs, logits)
	weights := make([]value, 0, e.TopK)
	for i := range e.TopK {
		p := p + "choice_" + strconv.Itoa(i) + "/"
		m := b.slice(p+"score", best, b.list(int32(i)), int32(i+1), 1)
		behind := b.binary(p+"behind", mnn.BinarySub, logits, m)
		far := b.binary(p+"far", mnn.BinaryRealDiv, behind, b.binary(p+"unit", mnn.BinaryMaximum, magnitude, m))
		// A comparison gives int32.
		near := b.toFloat(p+"near_float", b.binary(p+"near", mnn.BinaryGreaterEqual, far, b.scalarFloat(-e.Near)))
		parts := b.unary(p+"exp", mnn.UnaryExp, b.binary(p+"below", mnn.BinaryMinimum, behind, b.scalarFloat(0)))
		sum := b.sum(p+"sum", b.binary(p+"parts", mnn.BinaryMul, parts, near))
		if i > 0 { // each expert that was chosen before adds 1 to the sum
			sum = b.binary(p+"others", mnn.BinarySub, sum, b.scalarFloat(float64(i)))
		}
		weights = append(weights, b.binary(p+"weight", mnn.BinaryRealDiv, b.scalarFloat(1), sum))
	}
	return b.concat(p+"weights", 1, weights...)
}

// weigh normalises and scales the weights of the chosen experts.
func (b *builder) weigh(p string, e *arch.Experts, weights value) value {
	if e.Normalize {
		sum := b.sum(p+"total", weights)
		if e.Epsilon != 0 {
			sum = b.binary(p+"total_epsilon", mnn.BinaryAdd, sum, b.scalarFloat(e.Epsilon))
		}
		weights = b.binary(p+"normalized", mnn.BinaryRealDiv, weights, sum)
	}
	if e.Scale != 0 {
		weights = b.times(p+"scaled", weights, e.Scale)
	}
	return weights
}

// group subtracts 10000 from the ranks [tokens, experts] of all experts outside the best groups. The worst of the best groups
// is the threshold.
func (b *builder) group(name string, e *arch.Experts, ranks value) value {
	groups, each := int32(e.Groups), int32(len(e.Experts)/e.Groups)
	best, _ := b.topK(name+"/experts", b.reshape(name+"/rows", ranks, -1, groups, each), e.GroupTop)
	scores := b.reshape(name+"/scores", b.sum(name+"/sum", best), -1, groups)
	top, _ := b.topK(name+"/top", scores, e.TopGroups)
	least := b.slice(name+"/least", top, b.list(int32(e.TopGroups-1)), sliceEnd, 1)
	// A comparison gives int32.
	keep := b.binary(name+"/keep", mnn.BinaryGreaterEqual, scores, least)
	keep = b.toFloat(name+"/keep_float", keep)
	drop := b.binary(name+"/drop", mnn.BinarySub, keep, b.scalarFloat(1))
	drop = b.times(name+"/penalty", drop, 10000)
	drop = b.binary(name+"/penalties", mnn.BinaryMul, b.reshape(name+"/penalty_rows", drop, -1, groups, 1), b.ones(1, 1, each))
	return b.binary(name, mnn.BinaryAdd, ranks, b.reshape(name+"/penalty_experts", drop, -1, groups*each))
}

// sum folds the last dimension to one element.
func (b *builder) sum(name string, x value) value {
	return b.op(name, mnn.OpReduction, &mnn.Reduction{Op: mnn.ReduceSum, Dims: []int32{-1}, Keep: true, T: mnn.DTFloat}, x)
}

// topK returns the k largest elements of the last dimension, largest first, and their indices.
func (b *builder) topK(name string, x value, k int) (values, indices value) {
	count := b.scalar(int32(k))
	values = b.op(name, mnn.OpTopKV2, &mnn.TopK{T: mnn.DTFloat, Sorted: true, Largest: true}, x, count)
	indices = b.tensor(name + "/indices")
	op := &(*b.ops)[len(*b.ops)-1]
	op.Outputs = append(op.Outputs, indices)
	return values, indices
}

// checkExperts rejects numbers that contradict each other, which the engine does not check.
func checkExperts(e *arch.Experts) error {
	n := len(e.Experts)
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), tensor.ErrCorrupt)
	}
	switch {
	case n == 0 || e.Router.Weight.Rows != n:
		return wrong("%s: %d rows for %d experts", e.Router.Weight.Tensor, e.Router.Weight.Rows, n)
	case e.TopK < 1 || e.TopK > n:
		return wrong("%d of %d experts for a token", e.TopK, n)
	case e.ScaleInput && e.TopK != 1:
		return fmt.Errorf("scaled inputs of %d experts for a token, not one: %w", e.TopK, tensor.ErrUnsupported)
	case e.Scoring != arch.Softmax && e.Scoring != arch.Sigmoid && e.Scoring != arch.TopKSoftmax && e.Scoring != arch.SparseMixer:
		return fmt.Errorf("router scoring %q: %w", e.Scoring, tensor.ErrUnsupported)
	case e.Scoring == arch.SparseMixer && (e.TopK != 2 || e.Correction.Tensor != "" || e.Groups > 1 || !(e.Near >= 0)):
		return fmt.Errorf("%s of %d experts, near being %v, in %d groups: %w",
			e.Scoring, e.TopK, e.Near, e.Groups, tensor.ErrUnsupported)
	case e.Groups <= 1:
		return nil
	case n%e.Groups != 0 || e.TopGroups < 1 || e.TopGroups > e.Groups || e.GroupTop < 1 || e.GroupTop > n/e.Groups:
		return wrong("%d of %d groups, by their best %d of %d experts", e.TopGroups, e.Groups, e.GroupTop, n)
	case e.TopK > e.TopGroups*(n/e.Groups):
		return wrong("%d experts for a token, of %d groups of %d", e.TopK, e.TopGroups, n/e.Groups)
	}
	return nil
}
