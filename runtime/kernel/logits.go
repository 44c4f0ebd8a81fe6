package kernel

import "math"

// Logits are products of rows with a matrix, for a [Device] that keeps them: they are many, and the work needs little of them.
type Logits struct {
	X                  []float32 // [Rows, Width]
	Rows, Vocab, Width int
	Weights            Factor // [Vocab, Width], by row or by panel
	// Version names the logits, see [NewVersion], so that the device may keep them for other work; or 0.
	Version uint64
}

// Multiplications is how many the logits take.
func (l *Logits) Multiplications() int { return l.Rows * l.Vocab * l.Width }

// Divergences is the work of computing [KL] and [LogSumExp] for every row of some logits and the same row of others, of the same shape.
type Divergences struct {
	Want, Got Logits
	KL        []float64 // [Rows], the result
}

// Multiplications implements [Work].
func (w *Divergences) Multiplications() int {
	return w.Want.Multiplications() + w.Got.Multiplications()
}

// Labels is the work of drawing a label for each row of logits, see [DrawLabels], and of computing the gradient of its negative log-likelihood
// with respect to the row of X: (softmax - 1 at the label) · Weights. A device leaves it to the caller if logits are not finite.
type Labels struct {
	Logits
	Back     Factor    // the same matrix, [Width, Vocab] by position
	At       []float64 // [Rows], places from 0 to 1
	Squares  []float64 // [Rows], a result: sums of squared probabilities
	Gradient []float32 // [Rows, Width], a result
}

// Multiplications implements [Work].
func (w *Labels) Multiplications() int { return 2 * w.Logits.Multiplications() }

// Draws is the work of drawing a token from each row of logits, see [Pick]. A device leaves it to the caller if logits are not finite.
type Draws struct {
	Logits
	At     []float64 // [Rows], fractions from 0 to 1
	Tokens []int32   // [Rows], the result
}

// do computes the logits.
func (l *Logits) do() []float32 {
	dst, n, k := make([]float32, l.Rows*l.Vocab), l.Vocab, l.Width
	Parallel(0, (n+PanelRows-1)/PanelRows, func(lo, hi int) {
		lo, hi = lo*PanelRows, min(hi*PanelRows, n)
		if l.Weights.Layout == ByRow {
			MatMulT(dst[lo:], l.X, l.Weights.Data[lo*l.Weights.Stride:], l.Rows, hi-lo, k, n, k, l.Weights.Stride)
			return
		}
		p := Packed{panels: l.Weights.Data, rows: n, cols: k}
		p.MulT(dst, l.X, l.Rows, n, k, lo, hi)
	})
	return dst
}

// each calls f for every row of the logits, in parallel.
func (l *Logits) each(logits []float32, f func(row int, logits []float32)) {
	Parallel(0, l.Rows, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			f(i, logits[i*l.Vocab:(i+1)*l.Vocab])
		}
	})
}

// Do is what a device computes.
func (w *Divergences) Do() {
	got := w.Got.do()
	w.Want.each(w.Want.do(), func(i int, p []float32) {
		q := got[i*len(p) : (i+1)*len(p)]
		w.KL[i] = KL(p, q, LogSumExp(p), LogSumExp(q))
	})
}

// Do is what a device computes. It reports whether the logits are finite.
func (w *Labels) Do() bool {
	logits := w.do()
	scratch, finite := make([]float32, len(logits)), make([]bool, w.Rows)
	w.each(logits, func(i int, row []float32) {
		var label [1]int32
		softmax := scratch[i*w.Vocab : (i+1)*w.Vocab]
		norm, factor := Exponents(softmax, row)
		if finite[i] = !math.IsInf(norm, 0) && norm == norm; !finite[i] {
			return
		}
		DrawLabels(label[:], row, []float64{norm}, w.At[i:], w.Squares[i:i+1])
		ScaleExact(softmax, softmax, factor)
		softmax[label[0]]--
	})
	for _, f := range finite {
		if !f {
			return false
		}
	}
	n, k := w.Width, w.Vocab
	Parallel(0, (n+PanelRows-1)/PanelRows, func(lo, hi int) {
		lo, hi = lo*PanelRows, min(hi*PanelRows, n)
		MatMul(w.Gradient[lo:], scratch, w.Back.Data[lo:], w.Rows, hi-lo, k, n, k, w.Back.Stride)
	})
	return true
}

// Do is what a device computes. It reports whether the logits are finite.
func (w *Draws) Do() bool {
	logits := w.do()
	if NonFinite(logits) >= 0 {
		return false
	}
	w.each(logits, func(i int, row []float32) { w.Tokens[i] = int32(Pick(row, w.At[i])) })
	return true
}
