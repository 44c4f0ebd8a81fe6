package kernel

import "fmt"

// KL is the divergence of q from p in nats, the sum of P*(log P - log Q) over all positions, where P and Q are the
// softmax of the logits p and q. normP and normQ are their [LogSumExp]. Terms with log P below -60 are left out: each
// is below 1e-24. Rounding can leave a tiny negative number where the true value is not below 0; that becomes 0. A NaN
// or +Inf in one of the rows gives NaN or +Inf. It panics unless the rows have the same length.
//
// Terms are float64; position i belongs to lane i mod 8 of the sum.
func KL(p, q []float32, normP, normQ float64) float64 {
	if len(p) != len(q) {
		panic(fmt.Sprintf("internal error: kernel.KL: lengths %d, %d", len(p), len(q)))
	}
	var lanes [8]float64
	divergence(&lanes, p, q, normP, normQ-normP)
	return max(sumLanes(&lanes), 0)
}

// divergenceCut is the logarithm of the smallest probability that counts.
const divergenceCut = -60

func divergenceGeneric(lanes *[8]float64, p, q []float32, norm, shift float64) {
	q = q[:len(p)]
	for i, v := range p {
		if d := float64(v) - norm; !(d < divergenceCut) {
			lanes[i%8] += float64(Exp(d) * ((float64(v) - float64(q[i])) + shift))
		}
	}
}
