package kernel

import "math"

// rowWeights turns scores into weights; per row it has m, l and the factor a of the last block.
type rowWeights struct{ top, sum, factor []float32 }

func (w *rowWeights) reset(rows int) {
	w.top, w.sum, w.factor = resized(w.top, rows), resized(w.sum, rows), resized(w.factor, rows)
	for i := range w.top {
		w.top[i] = -math.MaxFloat32
	}
	clear(w.sum)
}

// sink lets the row of each head, from head lo on and heads to a query, begin with its sink.
func (w *rowWeights) sink(sinks []float32, lo, heads int) {
	if sinks == nil {
		return
	}
	for r := range w.top {
		w.top[r], w.sum[r] = sinks[lo+r%heads], 1
	}
}

// weighGeneric replaces the first n of each row's 64 scores by their weights.
func (w *rowWeights) weighGeneric(scores []float32, n int) {
	full := n &^ 7
	for r, old := range w.top {
		s, top := scores[r*engineBlock:][:n], old
		for _, x := range s {
			top = max(top, x)
		}
		for j := range s {
			s[j] -= top
		}
		engineExpsGeneric(s[:full], s[:full])
		for j, x := range s[full:] {
			s[full+j] = expf(x)
		}
		sum := float32(0)
		for _, p := range s {
			sum += p
		}
		w.factor[r] = expf(old - top)
		w.sum[r] = float32(w.sum[r]*w.factor[r]) + sum
		w.top[r] = top
	}
}
