package cpu

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestFamilies: the graphs of all families, with masks, sinks, experts and recurrences, give the bits of the interpreter, in
// calls of all kinds, for one conversation and for several.
func TestFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	dirs, err := filepath.Glob(filepath.Join("..", "..", "pipeline", "arch", "testdata", "*", "config.json"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(len(dirs), err)
	}
	for _, config := range dirs {
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			m := packaged(t, filepath.Base(dir), quant.Spec{Bits: 4, Block: quant.WholeRow, Scale: tensor.F16})
			for _, mode := range []backend.Mode{backend.Float, backend.Int8} {
				o := backend.Options{Mode: mode, Threads: 1}
				want := m.compile(t, generic.Backend{}, o)
				o.Threads = 2
				got := m.compile(t, Backend{}, o)
				r := rand.New(rand.NewPCG(1, 2))
				values := func(n int) []float32 {
					x := make([]float32, n*m.width)
					for i := range x {
						x[i] = float32(r.NormFloat64()) / 8
					}
					return x
				}
				a, b := []backend.State{want.NewState()}, []backend.State{got.NewState()}
				for i, c := range []backend.Call{{Tokens: 5, All: true}, {Tokens: 1}, {Tokens: 1}, {Tokens: 24}, {Tokens: 70, All: true}, {Tokens: 1, All: true}} {
					c.Embeddings = values(c.Tokens)
					same(t, fmt.Sprintf("%v, call %d of %d tokens", mode, i, c.Tokens), runCall(t, got, b, c), runCall(t, want, a, c))
				}
				a, b = []backend.State{want.NewState(), want.NewState()}, []backend.State{got.NewState(), got.NewState()}
				for i, c := range []backend.Call{{Tokens: 24, All: true}, {Tokens: 1}, {Tokens: 8, All: true}, {Tokens: 12, All: true}} {
					c.Embeddings = values(2 * c.Tokens)
					same(t, fmt.Sprintf("%v, call %d of 2 states", mode, i), runCall(t, got, b, c), runCall(t, want, a, c))
				}
			}
		})
	}
}

func runCall(t *testing.T, e backend.Executable, s []backend.State, c backend.Call) []float32 {
	t.Helper()
	l, err := e.Run(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32{}, l...)
}
