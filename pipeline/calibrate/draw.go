package calibrate

import (
	"fmt"
	"math/rand/v2"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// fraction takes a number from 0 to 1 from random, for [next].
func fraction(random *rand.PCG) float64 { return float64(random.Uint64()>>11) * 0x1p-53 }

// next draws a token with the probabilities softmax(logits), at a fraction of their sum.
func next(logits []float32, u float64) (int32, error) {
	if i := kernel.NonFinite(logits); i >= 0 {
		return 0, fmt.Errorf("logit %d is %v: %w", i, logits[i], tensor.ErrCorrupt)
	}
	return int32(kernel.Pick(logits, u)), nil
}

// labels draws labels from rows of logits and computes the spreads of these, see [tableStats].
type labels struct {
	head    *forward.Head
	at      []float64 // where the labels of all rows are drawn, from 0 to 1
	spreads []float64 // of all rows
}

// choose is a [forward.Labels]: a label is the first token at which the running sum of the softmax exceeds the place.
func (x *labels) choose(first int, dst []int32, logits []float32, norms []float64) {
	spreads := x.spreads[first : first+len(dst)]
	kernel.DrawLabels(dst, logits, norms, x.at[first:], spreads)
	for r, squares := range spreads {
		spreads[r] = 1 - squares
		if vocab := len(logits) / len(dst); !x.head.Plain() {
			spreads[r] = spread(x.head, logits[r*vocab:(r+1)*vocab], norms[r])
		}
	}
}

// spreadBlock is how many probabilities are computed at a time.
const spreadBlock = 256

// spread is the sum of p (1-p) d^2 over the logits of a token, whose LogSumExp is norm.
func spread(head *forward.Head, logits []float32, norm float64) (sum float64) {
	var p [spreadBlock]float64
	for lo := 0; lo < len(logits); lo += spreadBlock {
		block := logits[lo:min(lo+spreadBlock, len(logits))]
		kernel.Exps(p[:len(block)], block, norm)
		for i, v := range block {
			p, d := p[i], float64(head.Slope(v))
			sum += float64(float64(p*(1-p)) * float64(d*d))
		}
	}
	return sum
}
