package verify

import "github.com/llmexport/llmexport/runtime/kernel"

// klOf is KL(p to q) in nats: the sum over tokens of P*(log P - log Q), for logits p and q of the same
// length and their LogSumExp. Stand-in: kernel.KL(p, q, normP, normQ)
func klOf(p, q []float32, normP, normQ float64) float64 {
	sum := 0.0
	d := normQ - normP
	for i, v := range p {
		lp := float64(v) - normP
		if lp < -60 { // contributes less than 1e-24
			continue
		}
		// Conversions keep products and sums apart: a manifest holds these numbers, the same on every machine.
		sum += float64(kernel.Exp(lp) * (float64(v) - float64(q[i]) + d))
	}
	return sum
}

// argMax is the index of the largest value, the smallest of several. Stand-in: kernel.ArgMax(row)
func argMax(row []float32) int {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return best
}

// absMax is the largest magnitude; NaN counts as 0. Stand-in: kernel.AbsMax(values)
func absMax(values []float32) float32 {
	var most float32
	for _, v := range values {
		if v = max(v, -v); v > most {
			most = v
		}
	}
	return most
}
