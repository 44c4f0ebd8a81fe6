package cuda

import (
	"fmt"
	"os"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// proofs are samples of work that are compared with the CPU before a card does such work for the first time: it would not be noticed if a
// driver made other code of the kernels on one generation of cards.
type proofs struct {
	feedback, descent, factor, choice, refinement, chain, whole, back, recurrence, recurrenceTokens, mixture, mixtureBack, divergences, labels, draws proof
}

type proof struct {
	once  sync.Once
	wrong bool
}

// Prove makes the card do a small piece of each kind of work but products of float32 before the first that it is asked for. What has other bits than the
// CPU's is left to the CPU, with a line that says so.
func (e *Engine) Prove() { e.proofs = &proofs{} }

// proven reports whether the card may do such work. What is too small for it needs no sample.
func (e *Engine) proven(w kernel.Work) bool {
	if e.proofs == nil || w.Multiplications() < e.least {
		return true
	}
	switch w := w.(type) {
	case *kernel.Product:
		if len(w.Parts) == 1 && narrow(w.Parts[0].B) != 0 { // kernels of chains
			return e.proveChain()
		}
	case *kernel.Feedback, *kernel.Feedbacks:
		return e.prove(&e.proofs.feedback, func() MeasuredWork { return e.measureFeedback(Shape{3 * feedbackRows / 2, 3 * factorColumns}, 1) })
	case *kernel.Descent:
		return e.prove(&e.proofs.descent, func() MeasuredWork { return e.measureDescent(Shape{3 * descentRows / 2, 3 * factorColumns}, 1) })
	case *kernel.Factoring:
		return e.prove(&e.proofs.factor, func() MeasuredWork { return e.measureFactor(3*factorColumns-4, 1) })
	case *kernel.Choice:
		return e.prove(&e.proofs.choice, func() MeasuredWork { return e.measureChoice(Shape{9 * choiceRows / 2, 3 * refineColumns}, 1) })
	case *kernel.Refinement:
		return e.prove(&e.proofs.refinement, func() MeasuredWork {
			return e.measureRefinement(Shape{5 * refineRows / 2, 3 * refineColumns / 2}, there, 1)
		})
	case *kernel.Chain:
		if hasExperts(w) && !e.prove(&e.proofs.mixture, func() MeasuredWork { return e.measureMixture(1, 1) }) {
			return false
		}
		if w.Given != nil {
			return e.prove(&e.proofs.back, func() MeasuredWork { return e.measureBack(1, 1) }) &&
				(!hasExperts(w) || e.prove(&e.proofs.mixtureBack, func() MeasuredWork { return e.measureMixtureBack(1, 1) }))
		}
		if w.Windows != nil {
			return e.prove(&e.proofs.whole, func() MeasuredWork { return e.measureWindows(1, 1) }) &&
				(!hasRecurrence(w) || e.prove(&e.proofs.recurrence, e.compareRecurrences))
		}
		return e.proveChain() && (!hasRecurrence(w) || e.prove(&e.proofs.recurrenceTokens, func() MeasuredWork { return e.compareRecurrenceTokens(1, 3) }))
	case *kernel.Divergences:
		return e.prove(&e.proofs.divergences, func() MeasuredWork { return e.measureDivergences(sampledLogits(), 1) })
	case *kernel.Labels:
		return e.prove(&e.proofs.labels, func() MeasuredWork { return e.measureLabels(sampledLogits(), 1) })
	case *kernel.Draws:
		return e.prove(&e.proofs.draws, func() MeasuredWork { return e.measureDraws(sampledLogits(), 1) })
	}
	return true
}

// proveChain takes tokens of many and of few windows through layers, because the kernels have tiles of two sizes.
func (e *Engine) proveChain() bool {
	return e.prove(&e.proofs.chain, func() MeasuredWork {
		m := e.measureChain(1, 1)
		if m.Differ == 0 {
			m = e.measureChain(4, 1)
		}
		return m
	})
}

func (e *Engine) prove(p *proof, sample func() MeasuredWork) bool {
	p.once.Do(func() {
		m := sample()
		p.wrong = m.Differ > 0
		if p.wrong && m.Card > 0 {
			fmt.Fprintf(os.Stderr, "%s computes a %s with other bits than this CPU (%d numbers of a sample), the CPU does it\n", e.card.Name, m.Work, m.Differ)
		}
	})
	return !p.wrong
}

// sampled does work of any size that is not proven.
func (e *Engine) sampled(w kernel.Work) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.compute(w, 0)
}
