package calibrate

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var families = []string{
	"llama", "llama-bias", "llama-linear-rope", "llama3-rope", "qwen2-tied", "qwen2-untied", "qwen3-tied", "qwen3-untied",
}

// known are all checkpoints of families.
func known(t *testing.T) (names []string) {
	t.Helper()
	dirs, err := filepath.Glob(familyDir("*/model.safetensors"))
	check(t, err)
	for _, dir := range dirs {
		names = append(names, filepath.Base(filepath.Dir(dir)))
	}
	if len(names) < 64 {
		t.Errorf("%d families: %v", len(names), names)
	}
	return names
}

func familyDir(name string) string { return filepath.Join("..", "arch", "testdata", name) }

var tinyDir = filepath.Join("..", "..", "testdata", "tiny-qwen3")

func openCheckpoint(t testing.TB, dir string) (*arch.Decoder, tensor.Source) {
	t.Helper()
	m, src := openModel(t, dir)
	return m.Text, src
}

// openModel opens a checkpoint with its towers.
func openModel(t testing.TB, dir string) (*arch.Model, tensor.Source) {
	t.Helper()
	c, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := arch.Describe(config, c.Tensors(), arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	src, err := arch.Open(m.Text, c)
	if err != nil {
		t.Fatal(err)
	}
	return m, src
}

// text is 256 tokens: of real text if the model has a vocabulary for it.
func text(t testing.TB, d *arch.Decoder) [][]int32 {
	t.Helper()
	var r struct {
		IDs []int32 `json:"ids"`
	}
	b, err := os.ReadFile(filepath.Join("..", "reference", "testdata", "calibration-512.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.IDs {
		r.IDs[i] %= int32(d.Vocab)
	}
	return [][]int32{r.IDs[:128], r.IDs[128:256]}
}

func logits(t testing.TB, d *arch.Decoder, src tensor.Source, windows [][]int32) []float32 {
	t.Helper()
	m, err := reference.New(d, src, reference.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	if err := m.Score(t.Context(), windows, func(tile reference.Tile) error {
		all = append(all, tile.Logits...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// divergence is the mean KL divergence of logits q from p.
func divergence(p, q []float32, vocab int) float64 {
	var sum float64
	for lo := 0; lo < len(p); lo += vocab {
		a, b := p[lo:lo+vocab], q[lo:lo+vocab]
		sum += kernel.KL(a, b, kernel.LogSumExp(a), kernel.LogSumExp(b))
	}
	return sum / float64(len(p)/vocab)
}

func readAll(t testing.TB, src tensor.Source, name string) []byte {
	t.Helper()
	r, err := src.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// floats reads a tensor in float32.
func floats(t testing.TB, src tensor.Source, w arch.Weight) []float32 {
	t.Helper()
	o, err := open(src, w)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, w.Rows*max(w.Cols, 1))
	if err := o.read(x, 0); err != nil {
		t.Fatal(err)
	}
	return x
}

// changed are the tensors of o with values other than the base's. It fails where o says otherwise.
func changed(t testing.TB, base tensor.Source, o *Overlay) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, info := range base.Tensors() {
		before, after := readAll(t, base, info.Name), readAll(t, o, info.Name)
		if info.DType != tensor.F32 && o.Changed(info.Name) {
			wide := make([]float32, len(before)/int(info.DType.Size()))
			if err := kernel.ToF32(wide, before, info.DType); err != nil {
				t.Fatal(err)
			}
			before = putFloats(nil, wide)
		}
		if names[info.Name] = !bytes.Equal(before, after); names[info.Name] != o.Changed(info.Name) {
			t.Errorf("%s: changed is %v, its values say %v", info.Name, o.Changed(info.Name), names[info.Name])
		}
	}
	return names
}

func fourBits(string) quant.Spec { return quant.Spec{Bits: 4, Block: 32, Scale: tensor.F16} }
