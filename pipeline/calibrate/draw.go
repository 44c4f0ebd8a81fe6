package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// drawBlock is how many probabilities are summed at a time: a draw finds its block by the sums, then its token within the block.
const drawBlock = 256

// next draws a token with the probabilities softmax(logits). Sums are float64. It takes one number from random.
func next(logits []float32, random *rand.PCG) (int32, error) {
	if i := kernel.NonFinite(logits); i >= 0 {
		return 0, fmt.Errorf("logit %d is %v: %w", i, logits[i], tensor.ErrCorrupt)
	}
	return int32(pick(logits, float64(random.Uint64()>>11)*0x1p-53)), nil
}

// pick returns the first index at which the running sum of exp(row) exceeds the fraction u of the total; 0 <= u < 1.
func pick(row []float32, u float64) int {
	top := float64(row[kernel.ArgMax(row)])
	sums := make([]float64, (len(row)+drawBlock-1)/drawBlock)
	total := 0.0
	for i := range sums {
		sums[i] = kernel.SumExp(row[i*drawBlock:min((i+1)*drawBlock, len(row))], top, 1)
		total += sums[i]
	}
	// Because of rounding, the last sum may fall short; the drawn token then still has a probability above 0.
	rest, last := float64(u*total), 0
	for i, sum := range sums {
		if sum == 0 {
			continue
		}
		last = i
		if rest < sum {
			break
		}
		rest -= sum
	}
	picked := last * drawBlock
	best := math.Inf(-1)
	for i := last * drawBlock; i < min((last+1)*drawBlock, len(row)); i++ {
		p := kernel.Exp(float64(row[i]) - top)
		if p > 0 && rest < p {
			return i
		}
		rest -= p
		if p > best {
			picked, best = i, p
		}
	}
	return picked
}
