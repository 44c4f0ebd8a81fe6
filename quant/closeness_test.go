package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Methods that promise weights nearer than some times rounding to nearest keep it in every block, on weights with tails of
// all sizes, and would not keep a promise of less than rounding leaves.
func TestNear(t *testing.T) {
	t.Parallel()
	const rows, cols = 24, 128
	r := rand.New(rand.NewPCG(3, 4))
	w := Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range w.Data {
		v := r.NormFloat64()
		switch i / cols % 6 {
		case 1:
			v /= max(1e-2, math.Abs(r.NormFloat64())) // Cauchy
		case 2:
			if i%64 == 5 {
				v *= 30
			}
		case 3:
			v = math.Copysign(math.Exp(3*r.NormFloat64()), v)
		case 4:
			v = float64(r.IntN(3) - 1)
		case 5:
			v += 20
		}
		w.Data[i] = float32(0.02 * v)
	}
	weights := NewSearch()
	weights.Importance = ImportanceWeights
	for _, q := range []Quantizer{NewSearch(), weights, NewHQQ()} {
		c, worst := q.Closeness(), 0.0
		if c.Weights != Near || c.Floats != Kept {
			t.Fatalf("%s: %+v", q.Name(), c)
		}
		for _, bits := range []int{2, 3, 4, 5, 6, 8} {
			for _, s := range []Spec{{Bits: bits, Block: 32, Scale: tensor.F16}, {Bits: bits, Block: 64, Scale: tensor.F16, Symmetric: true}, {Bits: bits, Block: WholeRow, Scale: tensor.F32}} {
				l, err := s.Layout(rows, cols)
				if err != nil {
					t.Fatal(err)
				}
				b := NewBlocks(l, s)
				if err := Encode(q, b, w, s, nil); err != nil {
					t.Fatal(err)
				}
				hat, off := make([]float32, len(w.Data)), make([]float64, l.Blocks)
				b.Dequantize(hat, s)
				rounding, err := NewRounding(s, cols)
				if err != nil {
					t.Fatal(err)
				}
				for row := range rows {
					least, err := rounding.Errors(w.Row(row))
					if err != nil {
						t.Fatal(err)
					}
					BlockErrors(off, hat[row*cols:(row+1)*cols], w.Row(row))
					for i, d := range off {
						if d > c.Factor*least[i] {
							t.Errorf("%s %s, row %d: block %d is off by %g, rounding by %g", q.Name(), s, row, i, d, least[i])
						}
						if least[i] > 0 {
							worst = max(worst, d/least[i])
						}
					}
				}
			}
		}
		if worst < 0.9 {
			t.Errorf("%s: at most %.3g of what rounding leaves: the test has no hard block", q.Name(), worst)
		}
	}
}

// A chain promises what its weakest method does.
func TestChainCloseness(t *testing.T) {
	t.Parallel()
	let := NewOmniQuant()
	let.LET = false
	for _, c := range []struct {
		methods []Method
		want    Closeness
	}{
		{[]Method{RTN{}}, Closeness{}},
		{[]Method{NewAWQ(), RTN{}}, Closeness{Floats: Rewritten}},
		{[]Method{NewAWQ(), NewSearch()}, Closeness{Weights: Near, Floats: Rewritten, Factor: searchedFactor}},
		{[]Method{NewGPTQ()}, Closeness{Weights: Fitted}},
		{[]Method{let}, Closeness{Weights: Fitted}},
		{[]Method{NewOmniQuant()}, Closeness{Weights: Fitted, Floats: Rewritten}},
		{[]Method{RTN{}, NewDistill()}, Closeness{Weights: Fitted, Floats: Rewritten}},
		{[]Method{NewRotation(), NewGPTQ(), NewDistill()}, Closeness{Weights: Fitted, Floats: Turned}},
	} {
		chain, err := NewChain(c.methods)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, chain.Closeness()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.methods, diff)
		}
	}
}
