package stage_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// pack makes a checkpoint of packed codes of the small trained model.
func pack(t *testing.T, o packed.Options) string {
	t.Helper()
	dir := t.TempDir()
	if err := packed.Convert(dir, tiny, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

var gptq = packed.Options{Format: packed.GPTQ, Bits: 4, Group: 128, Symmetric: true, Scale: tensor.F16}

const verifyShort = "verify: {perplexity: {window: 64, windows: 3, decode: 4}}"

// Codes of a checkpoint are those of its package, bit for bit, and the package is verified against the weights that they
// stand for.
func TestKept(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct {
		name     string
		options  packed.Options
		sections string
	}{
		{"gptq", gptq, ""},
		{"gptq of 3 bits", packed.Options{Format: packed.GPTQ, Bits: 3, Group: 64, Scale: tensor.F16}, "quantize: {import: keep, method: search, bits: 6}\n"},
		{"gptq for engine 3.5", gptq, "target: {engine: \"3.5\"}\n"},
		{"awq", packed.Options{Format: packed.AWQ, Bits: 4, Group: 64, Scale: tensor.F16}, "quantize: {overrides: [{match: embed, bits: 4}]}\n"},
		{"compressed-tensors", packed.Options{Format: packed.Compressed, Bits: 8, Group: -1, Symmetric: true, Scale: tensor.BF16}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := pack(t, c.options)
			src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if src.Quantized == nil || len(src.Quantized.Names()) != 7*len(src.Decoder.Layers) {
				t.Fatal("matrices are not packed")
			}
			w := newWork(t, dir, c.sections+verifyShort)
			w.must(t)
			listing(t, w.out())
			compareCodes(t, src, w.out())
		})
	}
}

// compareCodes demands that the matrices of a package are those of its source.
func compareCodes(t *testing.T, src *source.Source, dir string) {
	t.Helper()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ops := map[string]*mnn.Convolution{}
	for _, op := range p.Text().Graph.AllOps() {
		if x, ok := op.Param.(*mnn.Convolution); ok {
			ops[op.Name] = x
		}
	}
	left := slices.Clone(src.Quantized.Names())
	for _, x := range m.Tensors {
		at := slices.Index(left, x.Name)
		if at < 0 {
			continue
		}
		left = slices.Delete(left, at, at+1)
		got, err := ops[x.Op].Open(p.Text().Weights())
		if err != nil {
			t.Fatal(err)
		}
		spec, _, err := src.Quantized.Spec(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		n := got.Rows * got.Cols
		want := quant.Blocks{Codes: make([]uint8, n), Scale: make([]float32, got.Rows*got.Blocks)}
		if !spec.Symmetric {
			want.Zero = slices.Clone(want.Scale)
		}
		if err := src.Quantized.Blocks(want, x.Name, 0, got.Rows); err != nil {
			t.Fatal(err)
		}
		codes := make([]uint8, n)
		got.Unpack(codes, 0, got.Rows)
		if got.Bits != spec.Bits || got.Symmetric != spec.Symmetric || !bytes.Equal(codes, want.Codes) ||
			!slices.Equal(got.Scale, want.Scale) || !slices.Equal(got.Zero, want.Zero) {
			t.Errorf("%s: stored as %s, not as the %s of the checkpoint", x.Name, x.Spec, spec)
		}
	}
	if len(left) > 0 {
		t.Errorf("not in the package: %v", left)
	}
}

// Requantized matrices are floats as any others, for every method.
func TestRequantized(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	w := newWork(t, pack(t, gptq), "quantize: {import: requantize, bits: 8, method: search}\n"+verifyShort)
	w.must(t)
	if specs := specsOf(t, w.out()); !cmp.Equal(specs, map[string]int{"w8-b64-asym": 7*tinyLayers + 1}) {
		t.Errorf("%v", specs)
	}
}

// specsOf counts the specs of a package's matrices.
func specsOf(t *testing.T, dir string) map[string]int {
	t.Helper()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	specs := map[string]int{}
	for _, x := range m.Tensors {
		if x.Spec != "f32" {
			specs[x.Spec]++
		}
	}
	return specs
}

// What cannot be kept, or asked for where codes are kept, is refused before anything is made.
func TestNotKept(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	odd := packed.Options{Format: packed.GPTQ, Bits: 4, Group: 16, Scale: tensor.F16}
	w := newWork(t, pack(t, odd), "verify: {enabled: false}")
	_, err := w.run(t)
	var refused *stage.ImportError
	if !errors.As(err, &refused) || !errors.Is(err, tensor.ErrUnsupported) || refused.Others != 7*tinyLayers-1 ||
		!strings.Contains(err.Error(), "_proj.weight: groups of 16") {
		t.Errorf("%v", err)
	}
	nothing(t, w)
	w.must(t, "quantize.import=requantize")

	dir := pack(t, gptq)
	for _, c := range []struct{ name, sections, key, text string }{
		{"an override", "quantize: {overrides: [{match: embed, bits: 4}, {match: down_proj, bits: 8}]}", "quantize.overrides[1].match", "down_proj"},
		{"a method that watches", "quantize: {method: gptq}", "quantize.method", "gptq codes"},
		{"a budget", "quantize: {budget: {bpw: 4}}", "quantize.budget", "requantize"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWork(t, dir, c.sections+"\n"+verifyShort)
			_, err := w.run(t)
			var at *recipes.Error
			if !errors.As(err, &at) || at.Line < 4 || !strings.HasPrefix(at.Message, c.key+": ") || !strings.Contains(at.Message, c.text) {
				t.Errorf("%v, want %s with %q", err, c.key, c.text)
			}
			nothing(t, w)
		})
	}
}

// One bit of one scale of the source is a difference, although it is far below what rounding to the spec leaves.
func TestKeptDiffers(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	dir := pack(t, gptq)
	w := newWork(t, dir, "verify: {enabled: false}")
	w.must(t)
	m, err := manifest.Open(w.out())
	if err != nil {
		t.Fatal(err)
	}
	o, err := stage.OptionsOf(m, pipeline.Limits{Memory: 1 << 30, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	o.Window, o.Windows = 64, 1
	weights := func() manifest.Check {
		t.Helper()
		r, err := stage.VerifyPackage(t.Context(), w.out(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return r.Checks[slices.IndexFunc(r.Checks, func(c manifest.Check) bool { return c.Name == "weights" })]
	}
	if c := weights(); !c.Passed {
		t.Errorf("the same source: %+v", c)
	}
	change(t, filepath.Join(dir, "model.safetensors"), func(b []byte) []byte {
		head := 8 + int(binary.LittleEndian.Uint64(b))
		var entries map[string]struct {
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(b[8:head], &entries); err != nil {
			t.Fatal(err)
		}
		b[head+entries["model.layers.1.mlp.up_proj.scales"].Offsets[0]] ^= 1
		return b
	})
	// The manifest names the changed file, so that not its digest but the weights tell.
	changed, err := manifest.HashFile(t.Context(), filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.Source.Files, func(f manifest.File) bool { return f.Name == "model.safetensors" })
	m.Source.Files[i].SHA256 = changed.SHA256
	sealed, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.out(), manifest.FileName), sealed, 0o666); err != nil {
		t.Fatal(err)
	}
	if c := weights(); c.Passed || !strings.Contains(c.Detail, "model.layers.1.mlp.up_proj.weight") || !strings.Contains(c.Detail, "source's codes") {
		t.Errorf("a flipped bit: %+v", c)
	}
}
