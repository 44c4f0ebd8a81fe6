package stage_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/backends/cpu"
	"github.com/llmexport/llmexport/internal/synthetic/packed"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/mnn"
)

// halvesBound is how far a logit of a 16-bit package may lie from the source's, whose products of codes and scales do not fit
// into halves: each weight is off by up to 2^-11 of itself, and logits have a size of some ten.
const halvesBound = 0.05

// A checkpoint of narrow floats is the model of the numbers that they stand for: the reference has the same logits of both,
// bit for bit, and the packages have the same bytes, which give those logits.
func TestNarrow(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, tt := range []struct {
		name, family string
		narrow       packed.Narrow
	}{
		{"DeepSeek-V3 in fp8", "deepseek_v3", packed.Narrow{Format: packed.FP8, Block: [2]int{128, 128}}},
		{"blocks that end within heads and experts", "deepseek_v3", packed.Narrow{Format: packed.FP8, Block: [2]int{20, 24}}},
		{"Qwen 3 in fp8", "qwen3_moe", packed.Narrow{Format: packed.FP8, Block: [2]int{32, 32}}},
		{"gpt-oss in MXFP4", "gpt_oss", packed.Narrow{Format: packed.MXFP4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, floats, from := t.TempDir(), t.TempDir(), filepath.Join(families, tt.family)
			if err := tt.narrow.Convert(dir, floats, from); err != nil {
				t.Fatal(err)
			}
			g, err := stagetest.ReadGolden(filepath.Join(from, "golden.safetensors"), "0")
			if err != nil {
				t.Fatal(err)
			}
			got, want := referenceLogits(t, dir, g.IDs), referenceLogits(t, floats, g.IDs)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("logit %d is %g, of floats %g", i, got[i], want[i])
				}
			}
			if distance(g.Logits, want) == 0 {
				t.Error("nothing was rounded")
			}
			for _, bits := range []string{"16", "4"} {
				sections := "quantize: {bits: " + bits + ", block: auto}\nverify: {enabled: false}"
				narrow, wide := newWork(t, dir, sections), newWork(t, floats, sections)
				narrow.must(t)
				wide.must(t)
				for _, file := range []string{mnn.WeightFile(""), mnn.GraphFile("")} {
					a, err := os.ReadFile(filepath.Join(narrow.out(), file))
					if err != nil {
						t.Fatal(err)
					}
					if b, err := os.ReadFile(filepath.Join(wide.out(), file)); err != nil || !bytes.Equal(a, b) {
						t.Errorf("%s bits: %s differs (%v)", bits, file, err)
					}
				}
				if bits == "16" {
					if d := distance(want, packageLogits(t, narrow.out(), g.IDs)); !(d <= halvesBound) {
						t.Errorf("the package's logits are off by %g", d)
					}
				}
			}
		})
	}
}

// referenceLogits are those of all positions of a checkpoint.
func referenceLogits(t *testing.T, dir string, ids []int32) (logits []float32) {
	t.Helper()
	src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := reference.New(src.Decoder, src.Weights, reference.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Score(t.Context(), [][]int32{ids}, func(tile reference.Tile) error {
		logits = append(logits, tile.Logits...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return logits
}

// packageLogits are those of all positions of a package, in float mode.
func packageLogits(t *testing.T, dir string, ids []int32) []float32 {
	t.Helper()
	p, err := runtime.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, err := runtime.NewSession(p, cpu.Backend{}, runtime.Options{Mode: backend.Float, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	logits, err := s.Forward(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// distance is the largest difference of two logits.
func distance(a, b []float32) (d float64) {
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}
