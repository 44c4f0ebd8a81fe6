package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/backends/generic"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestFamilies: the graphs of all families, with masks, sinks, experts and recurrences, give the bits of the interpreter, in
// calls of all kinds, for one conversation and for several.
func TestFamilies(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("..", "..", "pipeline", "arch", "testdata", "*", "config.json"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(len(dirs), err)
	}
	for _, config := range dirs {
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			m, window := family(t, dir, quant.Spec{Bits: 4, Block: quant.WholeRow, Scale: tensor.F16})
			for _, mode := range []backends.Mode{backends.Float, backends.Int8} {
				o := backends.Options{Mode: mode, Window: window, Threads: 1}
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
				a, b := []backends.State{want.NewState()}, []backends.State{got.NewState()}
				for i, c := range []backends.Call{{Tokens: 5, All: true}, {Tokens: 1}, {Tokens: 1}, {Tokens: 24}, {Tokens: 70, All: true}, {Tokens: 1, All: true}} {
					c.Embeddings = values(c.Tokens)
					same(t, fmt.Sprintf("%v, call %d of %d tokens", mode, i, c.Tokens), runCall(t, got, b, c), runCall(t, want, a, c))
				}
				a, b = []backends.State{want.NewState(), want.NewState()}, []backends.State{got.NewState(), got.NewState()}
				for i, c := range []backends.Call{{Tokens: 24, All: true}, {Tokens: 1}, {Tokens: 8, All: true}, {Tokens: 12, All: true}} {
					c.Embeddings = values(2 * c.Tokens)
					same(t, fmt.Sprintf("%v, call %d of 2 states", mode, i), runCall(t, got, b, c), runCall(t, want, a, c))
				}
			}
		})
	}
}

func runCall(t *testing.T, e backends.Executable, s []backends.State, c backends.Call) []float32 {
	t.Helper()
	l, err := e.Run(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32{}, l...)
}

// family is the package of a checkpoint, and the window of its masks.
func family(t *testing.T, dir string, s quant.Spec) (model, int) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	d, err := arch.Describe(config, checkpoint.Tensors(), arch.Options{})
	if err != nil {
		t.Skip(err)
	}
	src, err := arch.Open(d, checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lower.Classic(d, lower.Options{})
	if err != nil {
		t.Skip(err)
	}
	p, err := plan.New(m, src.Tensors(), &quant.Policy{Default: s, Table: quant.Half})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := p.Write(t.Context(), &file, src, plan.WriteOptions{Quantizer: quant.RTN{}, Threads: 2, Memory: 1 << 26}); err != nil {
		t.Fatal(err)
	}
	b, err := p.Link().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return model{filepath.Base(dir), b, file.Bytes(), d.Hidden}, m.Window
}
