package generic

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/lower"
	"github.com/llmexport/llmexport/pipeline/plan"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// modelBound is how far logits of magnitude 1 may be off between two float32 computations of the same weights in
// other orders, of three layers. The halves of the package hold the BF16 weights of these checkpoints exactly but
// for a few below 2^-14.
const modelBound = 2e-5

type weights []byte

func (w weights) Size() int64 { return int64(len(w)) }

func (w weights) Bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > w.Size() || n > w.Size()-off {
		return nil, tensor.ErrCorrupt
	}
	return w[off : off+n], nil
}

// A small checkpoint goes through lowering, planning, writing, the graph's file format and this backend, and comes
// to the logits that the reference finds in the checkpoint itself.
func TestModels(t *testing.T) {
	for _, name := range []string{"qwen3-tied", "qwen3-untied", "qwen2-tied", "qwen2-untied", "llama", "llama-bias", "llama3-rope", "llama-linear-rope"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("..", "..", "pipeline", "arch", "testdata", name)
			config, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			src, err := safetensors.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { src.Close() })
			described, err := arch.Describe(config, src.Tensors(), arch.Options{})
			if err != nil {
				t.Fatal(err)
			}
			d := described.Text
			const tokens = 60
			ids := make([]int32, tokens)
			for i := range ids {
				ids[i] = int32((i*i*7 + 3*i + 1) % d.Vocab)
			}
			x := embed(t, src, d, ids)

			g, file := packaged(t, d, src)
			want := referenceLogits(t, d, src, ids)
			cuts := [][]int{{tokens}, {1, 59}, {32, 27, 1}}
			first := make([][]float32, len(cuts))
			for _, threads := range []int{1, 2, 5} {
				e, err := Backend{}.Compile(g, file, backend.Options{Threads: threads})
				if err != nil {
					t.Fatal(err)
				}
				for c, cut := range cuts {
					s := e.NewState()
					var got []float32
					at := 0
					for _, n := range cut {
						y, err := e.Run(t.Context(), []backend.State{s}, backend.Call{Embeddings: x[at*d.Hidden : (at+n)*d.Hidden], Tokens: n, All: true})
						if err != nil {
							t.Fatal(err)
						}
						got, at = append(got, y...), at+n
					}
					if first[c] == nil {
						first[c] = got
					}
					for i := range got {
						if math.Float32bits(got[i]) != math.Float32bits(first[c][i]) {
							t.Fatalf("%d threads, cuts %v: logit %d is %g, want the bits of %g", threads, cut, i, got[i], first[c][i])
						}
					}
				}
			}
			worst, top := 0., 0.
			for i, w := range want {
				top = max(top, math.Abs(float64(w)))
				for c := range cuts {
					worst = max(worst, math.Abs(float64(first[c][i]-w)))
				}
			}
			t.Logf("logits up to %.3g, off by at most %.2g", top, worst)
			if !(worst <= modelBound*max(top, 1)) {
				t.Errorf("off by %g", worst)
			}
		})
	}
}

// packaged writes a package of 16-bit weights and reads its graph back.
func packaged(t *testing.T, d *arch.Decoder, src tensor.Source) (*mnn.Graph, weights) {
	t.Helper()
	m, err := lower.Classic(d, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := plan.New(m, src.Tensors(), &quant.Policy{Default: quant.Half, Table: quant.Half})
	if err != nil {
		t.Fatal(err)
	}
	p := pl.Parts[0]
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
	return g, file.Bytes()
}

func embed(t *testing.T, src tensor.Source, d *arch.Decoder, ids []int32) []float32 {
	t.Helper()
	r, err := src.Open(d.Embedding.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	dtype := tensor.Invalid
	for _, i := range src.Tensors() {
		if i.Name == d.Embedding.Tensor {
			dtype = i.DType
		}
	}
	x := make([]float32, len(ids)*d.Hidden)
	raw := make([]byte, int64(d.Hidden)*dtype.Size())
	for i, id := range ids {
		if _, err := r.ReadAt(raw, int64(id)*int64(len(raw))); err != nil {
			t.Fatal(err)
		}
		if err := kernel.ToF32(x[i*d.Hidden:(i+1)*d.Hidden], raw, dtype); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func referenceLogits(t *testing.T, d *arch.Decoder, src tensor.Source, ids []int32) []float32 {
	t.Helper()
	m, err := reference.New(d, src, reference.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, len(ids)*d.Vocab)
	err = m.Score(t.Context(), [][]int32{ids}, func(tile reference.Tile) error {
		copy(want[tile.Pos0*d.Vocab:], tile.Logits)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return want
}
