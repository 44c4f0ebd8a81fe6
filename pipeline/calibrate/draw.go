package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/llmexport/llmexport/pipeline/forward"
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

// drawnRows is how many rows are drawn from at a time: each sum is a chain of additions in the order of the vocabulary, and the chains
// of several rows hide each other's latency.
const drawnRows = 4

// labels draws labels from rows of logits and computes the spreads of these, see [tableStats].
type labels struct {
	head    *forward.Head
	at      func(row int) float64 // where a label is drawn, from 0 to 1
	spreads []float64             // of all rows
}

// choose is a [forward.Labels]: a label is the first token at which the running sum of the softmax exceeds the place.
func (x *labels) choose(first int, dst []int32, logits []float32, norms []float64) {
	for len(dst) > drawnRows {
		vocab := len(logits) / len(dst)
		x.choose(first, dst[:drawnRows], logits[:drawnRows*vocab], norms[:drawnRows])
		first, dst, logits, norms = first+drawnRows, dst[drawnRows:], logits[drawnRows*vocab:], norms[drawnRows:]
	}
	var at [drawnRows]float64
	for r := range dst {
		at[r] = x.at(first + r)
	}
	collisions := drawTogether(dst, logits, norms, at)
	for r := range dst {
		x.spreads[first+r] = 1 - collisions[r]
		if vocab := len(logits) / len(dst); !x.head.Plain() {
			x.spreads[first+r] = spread(x.head, logits[r*vocab:(r+1)*vocab], norms[r])
		}
	}
}

// drawTogether sets the labels of at most drawnRows rows of logits to the tokens at the given places, from 0 to 1, of their softmax, and
// returns the sums of the squared probabilities. norms are the LogSumExp of the rows. Sums are those of the tokens in their order.
func drawTogether(labels []int32, logits []float32, norms []float64, at [drawnRows]float64) (collisions [drawnRows]float64) {
	var p [drawnRows][drawBlock]float64
	var sums [drawnRows]float64
	var drawn [drawnRows]bool
	vocab := len(logits) / len(labels)
	for lo := 0; lo < vocab; lo += drawBlock {
		n := min(drawBlock, vocab-lo)
		for r := range labels {
			kernel.Exps(p[r][:n], logits[r*vocab+lo:][:n], norms[r])
		}
		before := sums
		addTogether(&sums, &collisions, &p, n)
		for r := range labels {
			if !drawn[r] && sums[r] > at[r] {
				labels[r], drawn[r] = int32(lo+reached(p[r][:n], before[r], at[r])), true
			}
		}
	}
	for r := range labels {
		if !drawn[r] { // because of rounding
			labels[r] = int32(vocab - 1)
		}
	}
	return collisions
}

// addTogether adds the first n elements of every row to its sum, and their squares to its other sum.
func addTogether(sums, squares *[drawnRows]float64, p *[drawnRows][drawBlock]float64, n int) {
	p0, p1, p2, p3 := p[0][:n], p[1][:n], p[2][:n], p[3][:n]
	s0, s1, s2, s3 := sums[0], sums[1], sums[2], sums[3]
	c0, c1, c2, c3 := squares[0], squares[1], squares[2], squares[3]
	for i, a := range p0 {
		b, c, d := p1[i], p2[i], p3[i]
		s0 += a
		s1 += b
		s2 += c
		s3 += d
		c0 += float64(a * a)
		c1 += float64(b * b)
		c2 += float64(c * c)
		c3 += float64(d * d)
	}
	*sums, *squares = [drawnRows]float64{s0, s1, s2, s3}, [drawnRows]float64{c0, c1, c2, c3}
}

// reached is the index of the element with which a running sum exceeds a limit; one does.
func reached(p []float64, sum, limit float64) int {
	for i, v := range p {
		if sum += v; sum > limit {
			return i
		}
	}
	panic("internal error: calibrate: a sum is not repeated")
}

// spread is the sum of p (1-p) d^2 over the logits of a token, whose LogSumExp is norm.
func spread(head *forward.Head, logits []float32, norm float64) (sum float64) {
	var p [drawBlock]float64
	for lo := 0; lo < len(logits); lo += drawBlock {
		block := logits[lo:min(lo+drawBlock, len(logits))]
		kernel.Exps(p[:len(block)], block, norm)
		for i, v := range block {
			p, d := p[i], float64(head.Slope(v))
			sum += float64(float64(p*(1-p)) * float64(d*d))
		}
	}
	return sum
}
