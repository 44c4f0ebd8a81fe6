package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Work is given to a card after a sample of it had the bits of the CPU, and never if not. The sample is compared once.
func TestProve(t *testing.T) {
	e := engine(t)
	e.Prove()
	e.least = 0
	a := definite(132)
	want := quant.NewFactoring(append([]float32(nil), a...), 132)
	quant.Factor(want, 1)
	got := quant.NewFactoring(append([]float32(nil), a...), 132)
	if !e.Compute(got) || differ(got.A[128*132:], want.A[128*132:]) != 0 {
		t.Error("a factoring was not done, or has other bits")
	}
	if n := e.Spent().Products; n != 2 {
		t.Errorf("%d pieces of work, want the sample and the work", n)
	}
	if !e.Compute(randomRefinement(rand.New(rand.NewPCG(16, 1)), true, false)) || e.Spent().Products != 4 {
		t.Errorf("a refinement was not done, or its sample: %d pieces of work", e.Spent().Products)
	}
	if !e.Compute(randomChoice(rand.New(rand.NewPCG(16, 1)), true, false)) || e.Spent().Products != 6 {
		t.Errorf("a choice was not done, or its sample: %d pieces of work", e.Spent().Products)
	}
	if !e.Compute(backOf(0)) || e.Spent().Products != 8 {
		t.Errorf("gradients were not computed, or their sample: %d pieces of work", e.Spent().Products)
	}
	l := drawnLogits(3, Shape{50, 20})
	for i, w := range []kernel.Work{
		&kernel.Divergences{Want: l.Logits, Got: l.Logits, KL: make([]float64, 3)},
		&kernel.Labels{Logits: l.Logits, Back: l.back, At: evenly(3), Squares: make([]float64, 3), Gradient: make([]float32, 60)},
		&kernel.Draws{Logits: l.Logits, At: evenly(3), Tokens: make([]int32, 3)},
	} {
		if n := int64(10 + 2*i); !e.Compute(w) || e.Spent().Products != n {
			t.Errorf("work %d with logits was not done, or its sample: %d pieces of work, want %d", i, e.Spent().Products, n)
		}
	}
	if !e.Compute(mixtureOf(2, true)) || e.Spent().Products != 20 {
		t.Errorf("a mixture was not done, or its samples and that of whole windows: %d pieces of work", e.Spent().Products)
	}
	if !e.Compute(mixtureBackOf(2)) || e.Spent().Products != 25 {
		t.Errorf("gradients of a mixture were not computed, or their samples: %d pieces of work", e.Spent().Products)
	}
	if !e.Compute(recurrenceOf(4)) || e.Spent().Products != 28 {
		t.Errorf("recurrences were not computed, or their samples: %d pieces of work", e.Spent().Products)
	}
	e.Prove()
	samples := 0
	for range 2 {
		if e.prove(&e.proofs.factor, func() MeasuredWork {
			samples++
			return MeasuredWork{Work: "factor", Card: 1, Differ: 3}
		}) {
			t.Error("work with other bits is done")
		}
	}
	if samples != 1 || e.Compute(got) {
		t.Errorf("%d samples, or work was done after one with other bits", samples)
	}
	e.proofs.chain.once.Do(func() { e.proofs.chain.wrong = true })
	if e.Compute(&kernel.Product{Dst: make([]float32, 1), Rows: 1, Cols: 1, Stride: 1,
		Parts: []kernel.Part{part([]float32{1}, kernel.ByRow, 1, stored([]float32{1}, 1, 1, tensor.BF16), 1)}}) {
		t.Error("a product of 16 bits was computed after a sample of its kernels with other bits")
	}
	if !e.proven(&kernel.Product{}) {
		t.Error("products are proven by earlier runs on cards")
	}
}
