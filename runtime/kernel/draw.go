package kernel

import "math"

// drawBlock is how many probabilities are summed at a time: a draw finds its block by the sums, then its token within the block.
const drawBlock = 256

// Pick returns the first index at which the running sum of exp(row) exceeds the fraction u of the total, 0 <= u < 1. Elements are finite. Sums
// are float64: those of blocks of 256 elements, see [SumExp], are added in their order.
func Pick(row []float32, u float64) int {
	top := float64(row[ArgMax(row)])
	sums := make([]float64, (len(row)+drawBlock-1)/drawBlock)
	total := 0.0
	for i := range sums {
		sums[i] = SumExp(row[i*drawBlock:min((i+1)*drawBlock, len(row))], top, 1)
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
		p := Exp(float64(row[i]) - top)
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

// DrawLabels sets the labels of rows of logits to the tokens at the given places, from 0 to 1, of their softmax, and squares to the sums of
// the squared probabilities. norms are the [LogSumExp] of the rows. Sums are float64, of the tokens in their order.
func DrawLabels(labels []int32, logits []float32, norms, at, squares []float64) {
	vocab := len(logits) / max(1, len(labels))
	for len(labels) > 0 {
		n := min(drawnRows, len(labels))
		drawTogether(labels[:n], logits[:n*vocab], norms, at, squares)
		labels, logits, norms, at, squares = labels[n:], logits[n*vocab:], norms[n:], at[n:], squares[n:]
	}
}

// drawTogether is DrawLabels for at most drawnRows rows.
func drawTogether(labels []int32, logits []float32, norms, at, squares []float64) {
	var p [drawnRows][drawBlock]float64
	var sums, collisions [drawnRows]float64
	var drawn [drawnRows]bool
	vocab := len(logits) / len(labels)
	for lo := 0; lo < vocab; lo += drawBlock {
		n := min(drawBlock, vocab-lo)
		for r := range labels {
			Exps(p[r][:n], logits[r*vocab+lo:][:n], norms[r])
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
	copy(squares, collisions[:len(labels)])
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
	panic("internal error: kernel: a sum is not repeated")
}
