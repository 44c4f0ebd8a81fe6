package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
)

// The sums of windows against float64, the first tokens left out and a long input shortened, on any number of threads.
func TestResidue(t *testing.T) {
	const windows, tokens, skip, rows, cols = 5, 33, 4, 70, 150
	random := rand.New(rand.NewPCG(1, 3))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64())
		}
		return x
	}
	x, quantized, float := draw(windows*tokens*cols), draw(windows*tokens*rows), draw(windows*tokens*rows)
	const long = 2*tokens + skip + 1
	for j := range cols {
		x[long*cols+j] *= 1000
	}
	var first []float32
	for _, threads := range []int{1, 2, 7} {
		m, r := newInputMoments(cols, true), newResidue(rows, cols)
		m.add(x, x, tokens, skip, threads) // all at once: the median is that of all
		r.add(m, x, quantized, float, tokens, skip, threads)
		got, err := r.mean(m.tokens, threads)
		check(t, err)
		if first == nil {
			first = got
		}
		if !slices.Equal(first, got) {
			t.Errorf("%d threads: other bits", threads)
		}
		share := float64(m.shares[long])
		if len(m.shares) != 1 || !(share > 0 && share < .1) {
			t.Fatalf("shortened by %v", m.shares)
		}
		for i := range rows {
			for j := range cols {
				var want float64
				for k := range windows * tokens {
					if v := float64(float[k*rows+i]-quantized[k*rows+i]) * float64(x[k*cols+j]); k == long {
						want += share * share * v
					} else if k%tokens >= skip {
						want += v
					}
				}
				want /= windows * (tokens - skip)
				if v := float64(got[i*cols+j]); math.Abs(v-want) > 1e-4 {
					t.Fatalf("[%d,%d] is %g, want %g", i, j, v, want)
				}
			}
		}
	}
}

// Matrices whose outputs are added to the states, and no others, get to know what these lack.
func TestResidues(t *testing.T) {
	for name, want := range map[string]int{"llama-bias": 4, "gemma2": 0, "glm4": 0, "qwen3_moe": 3} {
		d, src := openCheckpoint(t, familyDir(name))
		d.Layers = d.Layers[:2]
		j := newJob(t, d, src, randomText(d, 2, 32), quant.NewGPTQ())
		j.Dir = t.TempDir()
		got := 0
		q := &aims{Quantizer: j.Chain.Quantizer, n: &got}
		j.Chain.Quantizer = q
		_, err := Quantize(t.Context(), j.Options, j.Scheme)
		check(t, err)
		if got != want {
			t.Errorf("%s: %d matrices make up for the states, want %d", name, got, want)
		}
	}
}

// aims counts the statistics with a residue.
type aims struct {
	quant.Quantizer
	n *int
}

func (a *aims) Crosses() bool { return true }

func (a *aims) Prepare(s quant.Spec, cols int, in *quant.Stats, threads int) (quant.Encoder, error) {
	if in != nil && in.Residue != nil {
		*a.n++
	}
	return a.Quantizer.Prepare(s, cols, in, threads)
}
