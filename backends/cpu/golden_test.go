package cpu_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxGolden bounds KL(transformers || graph) of 16-bit weights, in nats: the engine's functions have some 1e-10 of it.
const maxGolden = 1e-9

// maxRounded is the same for models whose matrices are multiplied with factors before 16 bits round them.
const maxRounded = 1e-6

var rounded = map[string]bool{"falcon_h1": true}

// TestGoldens: graphs of 16-bit weights give the logits of transformers, for a whole prompt and token by token.
func TestGoldens(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("..", "..", "pipeline", "arch", "testdata", "*", "golden.safetensors"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(len(dirs), err)
	}
	for _, golden := range dirs {
		dir := filepath.Dir(golden)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			g, err := stagetest.ReadGolden(golden, "1")
			if err != nil {
				t.Fatal(err)
			}
			stepwise, err := stagetest.ReadStepwise(golden)
			if err != nil {
				t.Fatal(err)
			}
			if stepwise == nil {
				stepwise = g.Logits
			}
			e, x := golden16(t, dir, g.IDs)
			width := len(x) / len(g.IDs)
			for name, c := range map[string]struct {
				first int
				want  []float32
			}{"prefill": {len(g.IDs), g.Logits}, "decode": {32, stepwise}} {
				s := []backends.State{e.NewState()}
				var got []float32
				for at, n := 0, c.first; at < len(g.IDs); at, n = at+n, 1 {
					l, err := e.Run(t.Context(), s, backends.Call{Embeddings: x[at*width : (at+n)*width], Tokens: n, All: true})
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, l...)
				}
				kl := divergence(got, c.want, len(got)/len(g.IDs))
				t.Logf("%s: KL %.2g", name, kl)
				bound := maxGolden
				if rounded[filepath.Base(dir)] {
					bound = maxRounded
				}
				if !(kl <= bound) {
					t.Errorf("%s: KL %.3g from transformers", name, kl)
				}
			}
		})
	}
}

// divergence is the mean of KL(want || got) over rows, in nats.
func divergence(got, want []float32, width int) float64 {
	sum, rows := 0., len(want)/width
	for r := range rows {
		a, b := want[r*width:][:width], got[r*width:][:width]
		la, lb := kernel.LogSumExp(a), kernel.LogSumExp(b)
		for i := range a {
			p := float64(a[i]) - la
			sum += math.Exp(p) * (p - (float64(b[i]) - lb))
		}
	}
	return sum / float64(rows)
}

// golden16 compiles a checkpoint and looks up the embeddings of ids.
func golden16(t *testing.T, dir string, ids []int32) (backends.Executable, []float32) {
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
	p, err := plan.New(m, src.Tensors(), &quant.Policy{Default: quant.Half, Table: quant.Half})
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
	g, err := mnn.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	e, err := cpu.Backend{}.Compile(g, weightFile(file.Bytes()), backends.Options{Threads: 2, Window: m.Window, CacheBytes: 1 << 26})
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.Open(d.Embedding.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	x, raw := make([]float32, len(ids)*d.Hidden), []byte(nil)
	for _, info := range src.Tensors() {
		if info.Name != d.Embedding.Tensor {
			continue
		}
		raw = make([]byte, int64(d.Hidden)*info.DType.Size())
		for i, id := range ids {
			if _, err := r.ReadAt(raw, int64(id)*int64(len(raw))); err != nil {
				t.Fatal(err)
			}
			if err := kernel.ToF32(x[i*d.Hidden:(i+1)*d.Hidden], raw, info.DType); err != nil {
				t.Fatal(err)
			}
		}
	}
	return e, x
}

type weightFile []byte

func (w weightFile) Size() int64 { return int64(len(w)) }

func (w weightFile) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > w.Size() || n > w.Size()-off {
		return nil, tensor.ErrCorrupt
	}
	return w[off : off+n], nil
}
