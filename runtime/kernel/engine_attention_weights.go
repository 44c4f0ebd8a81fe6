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

// weighGeneric replaces the first n of a row's 64 scores by their weights.
func (w *rowWeights) weighGeneric(s []float32, n, row int) {
	s = s[:n]
	old, top := w.top[row], w.top[row]
	for _, x := range s {
		top = max(top, x)
	}
	for j := range s {
		s[j] -= top
	}
	full, sum := n&^7, float32(0)
	engineExpsGeneric(s[:full], s[:full])
	for j, x := range s[full:] {
		s[full+j] = expf(x)
	}
	for _, p := range s {
		sum += p
	}
	w.factor[row] = expf(old - top)
	w.sum[row] = float32(w.sum[row]*w.factor[row]) + sum
	w.top[row] = top
}
