package kernel

// attendArm computes query t of all heads as MNN on arm64 does: all sums over dimensions and keys are ascending and fused, and
// exp takes groups of four, see weighArm. With o the sum of the blocks so far and n that of a new one it is fused(o*a + n).
//
// Emulates CPUAttention::onExecute, MNNPackedMatMul and MNNPackedMatMulRemain (arm/arm64), MNNSoftmaxFp32_Pack4
// (arm/CommonOptFunctionNeon.cpp) and MNNFlashAttentionUpdateBlockOutput (CommonOptFunction.cpp).
func (a *EngineAttention) attendArm(j *attentionJob, t int) {
	heads, dim, width, seen := j.hi-j.lo, j.cache.dim, j.cache.valueTiles()*tileColumns, j.sees(t)
	at := (t*j.heads + j.lo) * dim
	a.scores, a.mixed = resized(a.scores, heads*engineBlock), resized(a.mixed, heads*width)
	w := &a.weights
	w.reset(heads)
	w.sink(j.sinks, j.lo, heads)
	total := make([]float32, heads*width)
	for start := 0; start < seen; start += engineBlock {
		keys, values := j.cache.block(j.kvHead, start/engineBlock)
		n := min(engineBlock, seen-start)
		dots, mixes := j.dots(heads, n), j.mixes(heads, n)
		scale := j.scale
		if j.mask != nil {
			scale = 1
		}
		dots.generic(a.scores, j.q[at:][:heads*dim], keys, scale, nil, false)
		for h := range heads {
			s := a.scores[h*engineBlock:][:n]
			if j.mask != nil {
				for i, m := range j.maskRow(t, start, n) {
					s[i] = float32(fma32(float64(s[i]), float64(j.scale), float64(m)))
				}
			}
			w.weighArm(h, s)
		}
		mixes.generic(a.mixed, a.scores, values, 1, nil, false)
		for i, n := range a.mixed {
			if start > 0 {
				n = float32(fma32(float64(total[i]), float64(w.factor[i/width]), float64(n)))
			}
			total[i] = n
		}
	}
	for h := range heads {
		scale(j.out[at+h*dim:][:dim], total[h*width:][:dim], 1/w.sum[h])
	}
}

// weighArm replaces the scores of a row by their weights.
func (w *rowWeights) weighArm(r int, s []float32) {
	old := w.top[r]
	top, full := old, len(s)&^3
	for _, x := range s {
		top = max(top, x)
	}
	var lanes [4]float32
	var sum float32
	for i, x := range s {
		if i < full {
			s[i] = armExp(x - top)
			lanes[i%4] += s[i]
		} else {
			s[i] = expf(x - top)
			sum += s[i]
		}
	}
	sum += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
	a := expf(old - top)
	w.factor[r], w.top[r] = a, top
	w.sum[r] = float32(fma32(float64(w.sum[r]), float64(a), float64(sum)))
}
