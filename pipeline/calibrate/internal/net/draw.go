package net

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// drawBlock is how many probabilities are summed at a time: a draw finds its block by the sums, and its token within.
const drawBlock = 256

// drawBuffer is what a goroutine needs to draw.
type drawBuffer struct {
	likeliest []int32
	row       []float32
	sums      []float64
}

// draw draws a token with the probabilities softmax(logits / Temperature), of the TopK likeliest if so asked. Sums are
// float64. It takes one number from random.
func (w *sampler) draw(b *drawBuffer, logits []float32, random *rand.PCG) (int32, error) {
	if i := kernel.NonFinite(logits); i >= 0 {
		return 0, fmt.Errorf("logit %d is %v: %w", i, logits[i], tensor.ErrCorrupt)
	}
	u := float64(random.Uint64()>>11) * 0x1p-53
	if w.TopK == 0 || w.TopK >= len(logits) {
		return int32(b.pick(logits, 1/w.Temperature, u)), nil
	}
	b.likeliest = kernel.TopK(b.likeliest[:0], logits, w.TopK)
	row := grow(&b.row, len(b.likeliest))
	for i, token := range b.likeliest {
		row[i] = logits[token]
	}
	return b.likeliest[b.pick(row, 1/w.Temperature, u)], nil
}

// pick is the index where the sum of exp(row*scale) passes the fraction u, at least 0 and below 1, of the whole.
func (b *drawBuffer) pick(row []float32, scale, u float64) int {
	top := float64(row[kernel.ArgMax(row)])
	blocks := (len(row) + drawBlock - 1) / drawBlock
	sums := grow(&b.sums, blocks)
	total := 0.0
	for i := range sums {
		sums[i] = kernel.SumExp(row[i*drawBlock:min((i+1)*drawBlock, len(row))], top, scale)
		total += sums[i]
	}
	// Rounding may leave something behind the last sum; whatever is drawn then has a probability above 0.
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
		p := kernel.Exp(float64((float64(row[i]) - top) * scale))
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
