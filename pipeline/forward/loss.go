package forward

import "github.com/llmexport/llmexport/runtime/kernel"

// KLGradient replaces the logits q by the gradient of KL(softmax(p) || softmax(q)), softmax(q) - softmax(p), for every
// row. Both are [rows, Vocab]; p stays as it is. The result is the sum of the divergences, in nats.
func (m *Model) KLGradient(q, p []float32) float64 {
	vocab := m.decoder.Vocab
	return m.losses(rows("KLGradient", q, vocab, p, vocab), 1, 2, func(lo, _ int, scratch []float32, losses []float64) {
		q, p := q[lo*vocab:(lo+1)*vocab], p[lo*vocab:(lo+1)*vocab]
		target, student := cut(scratch, vocab)
		normP, factorP := kernel.Exponents(target, p)
		normQ, factorQ := kernel.Exponents(student, q)
		losses[0] = kernel.KL(p, q, normP, normQ)
		kernel.ScaleExact(target, target, factorP)
		kernel.ScaleExact(q, student, factorQ)
		for i, t := range target {
			q[i] -= t
		}
	})
}

// labelRows is how many rows at most are given labels by one call of [Labels], which may hide the latency of sums in the order of the
// vocabulary by taking several at a time.
const labelRows = 4

// Labels sets the labels of some adjacent rows, the first of which has the index first: norms are the LogSumExp of their logits
// [len(labels), Vocab], which do not change. Several goroutines call it; what it sets must not depend on the rows that come together.
type Labels func(first int, labels []int32, logits []float32, norms []float64)

// CrossEntropyGradient replaces the logits q [rows, Vocab] by the gradient of the negative log-likelihoods of labels, one for
// each row: softmax(q), less 1 at the label. A row with a negative label adds nothing and gets zeros. The result is the sum of
// the negative log-likelihoods, in nats.
func (m *Model) CrossEntropyGradient(q []float32, choose Labels) float64 {
	vocab := m.decoder.Vocab
	return m.losses(rows("CrossEntropyGradient", q, vocab, q, vocab), labelRows, labelRows, func(lo, hi int, scratch []float32, losses []float64) {
		var labels [labelRows]int32
		var norms, factors [labelRows]float64
		n, q := hi-lo, q[lo*vocab:hi*vocab]
		for r := range n {
			norms[r], factors[r] = kernel.Exponents(scratch[r*vocab:(r+1)*vocab], q[r*vocab:(r+1)*vocab])
		}
		choose(lo, labels[:n], q, norms[:n])
		for r, label := range labels[:n] {
			row := q[r*vocab : (r+1)*vocab]
			if label < 0 {
				clear(row)
				continue
			}
			losses[r] = norms[r] - float64(row[label])
			kernel.ScaleExact(row, scratch[r*vocab:(r+1)*vocab], factors[r])
			row[label]--
		}
	})
}

// losses returns the sum of the losses of all rows, in their order: f sets those of rows lo to hi-1, at most most of them. It has scratch
// for that many rows of logits, of arbitrary content.
func (m *Model) losses(rows, most, scratch int, f func(lo, hi int, scratch []float32, losses []float64)) (sum float64) {
	each := make([]float64, rows)
	units := (rows + most - 1) / most
	units = min(rows, (units+m.threads-1)/m.threads*m.threads) // as many for every thread
	kernel.Parallel(m.threads, units, func(u, end int) {
		a := m.arenas.Get().(*arena)
		defer m.arenas.Put(a)
		free := grow(&a.floats, scratch*m.decoder.Vocab)
		for ; u < end; u++ {
			lo, hi := rows*u/units, rows*(u+1)/units
			f(lo, hi, free, each[lo:hi])
		}
	})
	for _, x := range each {
		sum += x
	}
	return sum
}
