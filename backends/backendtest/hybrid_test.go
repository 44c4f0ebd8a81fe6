package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// seen is an output that an observer was shown.
type seen struct {
	op     string
	output int
	shape  string
	values []float32
}

// TestHybrid: recurrences and experts have the bits of the interpreter, and so has everything that observers see of them.
func TestHybrid(t *testing.T) {
	g, w, width := hybrid(t)
	for _, o := range []backend.Options{
		{}, {CacheBytes: 1 << 20}, {CacheBytes: 30_000}, {Mode: backend.Int8}, {Mode: backend.Int8, DynamicOption: 2}, {Mode: backend.Int8, CodeBytes: 1},
	} {
		for _, threads := range []int{1, 3} {
			o.Threads = threads
			t.Run(fmt.Sprintf("%v option %d cache %d codes %d threads %d", o.Mode, o.DynamicOption, o.CacheBytes, o.CodeBytes, threads), func(t *testing.T) {
				var want, got backend.Executable
				var err error
				if want, err = (generic.Backend{}).Compile(g, w, o); err != nil {
					t.Fatal(err)
				}
				if got, err = (cpu.Backend{}).Compile(g, w, o); err != nil {
					t.Fatal(err)
				}
				if n := got.TokenBytes(); n < int64(width) {
					t.Errorf("%d bytes for each token", n)
				}
				r := rand.New(rand.NewPCG(1, 2))
				a, b := []backend.State{want.NewState()}, []backend.State{got.NewState()}
				for i, c := range []backend.Call{
					{Tokens: 5, All: true}, {Tokens: 1}, {Tokens: 1}, {Tokens: 24}, {Tokens: 70, All: true}, {Tokens: 1, All: true}, {Tokens: width},
				} {
					c.Embeddings = make([]float32, c.Tokens*width)
					for k := range c.Embeddings {
						c.Embeddings[k] = float32(r.NormFloat64())
					}
					var x, y []seen
					peaks, fused := map[string]float32{}, map[string]float32{}
					run := func(e backend.Executable, s []backend.State, list *[]seen, peaks map[string]float32) []float32 {
						c.Observe, c.Peaks = nil, nil
						if i < 4 {
							c.Observe = func(op *mnn.Op, output int, shape []int, values []float32) {
								*list = append(*list, seen{op.Name, output, fmt.Sprint(shape), slices.Clone(values)})
							}
						}
						if i != 1 {
							c.Peaks = func(op *mnn.Op, v float32) { peaks[op.Name] = max(peaks[op.Name], v) }
						}
						l, err := e.Run(t.Context(), s, c)
						if err != nil {
							t.Fatal(err)
						}
						return l
					}
					p, q := run(want, a, &x, peaks), run(got, b, &y, fused)
					sameBits(t, fmt.Sprintf("call %d of %d tokens", i, c.Tokens), q, p)
					if len(x) != len(y) {
						t.Fatalf("call %d: %d outputs were observed, want %d", i, len(y), len(x))
					}
					for k := range x {
						if x[k].op != y[k].op || x[k].output != y[k].output || x[k].shape != y[k].shape {
							t.Fatalf("call %d: output %d is %s %d %s, want %s %d %s", i, k, y[k].op, y[k].output, y[k].shape, x[k].op, x[k].output, x[k].shape)
						}
						sameBits(t, x[k].op, y[k].values, x[k].values)
					}
					for name, v := range fused {
						if w, ok := peaks[name]; !ok || w != v {
							t.Errorf("call %d: the peak of %s is %g, want %g", i, name, v, w)
						}
					}
					if len(fused) < len(peaks)/3 {
						t.Errorf("call %d: %d peaks of %d", i, len(fused), len(peaks))
					}
				}
			})
		}
	}
}
