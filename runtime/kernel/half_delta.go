package kernel

import "math"

// halfTapSum is tapSum, fused.
func halfTapSum(x, w []float32) float32 {
	var sum float32
	for k, v := range w {
		sum = FMA(x[k], v, sum)
	}
	return sum
}

// halfConvolve writes SiLU of the sums of a channel to row.
func (c *EngineDeltaRule) halfConvolve(row, padded, w []float32) {
	for t := range row {
		row[t] = halfTapSum(padded[t:], w)
	}
	if c.decodes() {
		row[0] = RoundF16(row[0] * (1 / (1 + expf(-row[0]))))
		return
	}
	for t, v := range row {
		e := halfExp(-v)
		row[t] = v / (1 + e)
	}
	HalfStore(row, row)
}

// halfNormalize is normalize in half precision: q and k are stored.
func (c *deltaTask) halfNormalize(s *convScratch, q, k []float32, factor float32) {
	const eps = 1e-6
	byKey := float32(1)
	if c.QKNorm {
		var qq, kk float32
		for i, v := range q {
			qq, kk = FMA(v, v, qq), FMA(k[i], k[i], kk)
		}
		factor, byKey = factor/float32(math.Sqrt(float64(qq+eps))), 1/float32(math.Sqrt(float64(kk+eps)))
	}
	scale(s.q, q, factor)
	scale(s.k, k, byKey)
	HalfRound(s.q, s.q)
	HalfRound(s.k, s.k)
}

// halfStep is step in half precision: the matrix is stored, and sums are fused in float32. Between the kernels of a single token products and
// differences are stored, too.
//
// Emulates MNNFusedGatedDeltaFp16, MNNDualMatVecFp16_Fp32Accum and MNNDecayRankOneUpdateFp16_Fp32Accum (Arm82Functions.cpp).
func (c *deltaTask) halfStep(s *convScratch, before, after, v, out []float32, decay, beta float32) {
	dv, single := len(v), (*EngineDeltaRule)(c).decodes()
	byKey, byQuery := s.vector[:dv], s.vector[dv:][:dv]
	clear(byKey)
	clear(byQuery)
	var kq float32
	for i, k := range s.k {
		q := s.q[i]
		kq = FMA(k, q, kq)
		for j, m := range before[i*dv:][:dv] {
			byKey[j], byQuery[j] = FMA(m, k, byKey[j]), FMA(m, q, byQuery[j])
		}
	}
	if single {
		HalfRound(s.vector[:2*dv], s.vector[:2*dv])
	}
	for j := range out {
		delta := float32(beta * FMA(-decay, byKey[j], v[j]))
		out[j] = RoundF16(FMA(kq, delta, float32(decay*byQuery[j])))
		byKey[j] = delta
	}
	if single {
		HalfRound(byKey, byKey)
	}
	for i, k := range s.k {
		row := after[i*dv:][:dv]
		for j, m := range before[i*dv:][:dv] {
			row[j] = FMA(byKey[j], k, float32(decay*m))
		}
		HalfRound(row, row)
	}
}
