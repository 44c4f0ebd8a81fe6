package forward

import (
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// KLGradient replaces the logits q by the gradient of KL(softmax(p) || softmax(q)), softmax(q) - softmax(p), for every
// row. Both are [rows, Vocab]; p stays as it is. The result is the sum of the divergences, in nats.
func (m *Model) KLGradient(q, p []float32) float64 {
	vocab := m.decoder.Vocab
	return m.losses(rows("KLGradient", q, vocab, p, vocab), func(r int) float64 {
		q, p := q[r*vocab:(r+1)*vocab], p[r*vocab:(r+1)*vocab]
		loss := kernel.KL(p, q, kernel.LogSumExp(p), kernel.LogSumExp(q))
		target := slices.Clone(p)
		kernel.Softmax(target)
		kernel.Softmax(q)
		for i, t := range target {
			q[i] -= t
		}
		return loss
	})
}

// CrossEntropyGradient replaces the logits q [rows, Vocab] by the gradient of the negative log-likelihoods of labels, one for
// each row: softmax(q), less 1 at the label. A row with a negative label adds nothing and gets zeros. The result is the sum of
// the negative log-likelihoods, in nats.
func (m *Model) CrossEntropyGradient(q []float32, labels []int32) float64 {
	vocab := m.decoder.Vocab
	if len(q) != len(labels)*vocab {
		panic(fmt.Sprintf("internal error: forward.CrossEntropyGradient: %d logits for %d labels", len(q), len(labels)))
	}
	return m.losses(len(labels), func(r int) float64 {
		q, label := q[r*vocab:(r+1)*vocab], labels[r]
		if label < 0 {
			clear(q)
			return 0
		}
		loss := kernel.LogSumExp(q) - float64(q[label])
		kernel.Softmax(q)
		q[label]--
		return loss
	})
}

// losses returns the sum of f over rows, in their order.
func (m *Model) losses(rows int, f func(r int) float64) (sum float64) {
	each := make([]float64, rows)
	kernel.Parallel(m.threads, rows, func(lo, hi int) {
		for ; lo < hi; lo++ {
			each[lo] = f(lo)
		}
	})
	for _, x := range each {
		sum += x
	}
	return sum
}
