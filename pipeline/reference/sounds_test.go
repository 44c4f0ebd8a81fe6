package reference_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime/sound"
)

// Encoders of sound make the rows, and models with them the logits, that transformers computed: from the features of the engine, and from
// those of the library, which are here computed from the clips.
func TestSounds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../arch/testdata/*/sounds.safetensors")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d checkpoints: %v", len(files), err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			want, err := stagetest.ReadSounds(file)
			if err != nil {
				t.Fatal(err)
			}
			src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if err := src.Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
			ear, err := forward.NewEar(src.Model.Ear, src.Weights, 2)
			if err != nil {
				t.Fatal(err)
			}
			m, err := reference.New(src.Decoder, src.Weights, reference.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			logits := func(features [][]float32) (rows, logits []float32) {
				for _, f := range features {
					x, err := ear.Rows(t.Context(), f)
					if err != nil {
						t.Fatal(err)
					}
					if n := src.Model.Ear.Rows(len(f)/sound.Mels) * src.Decoder.Hidden; len(x) != n {
						t.Fatalf("%d values for a clip, want %d", len(x), n)
					}
					rows = append(rows, x...)
				}
				h, err := m.HiddenWith(t.Context(), want.IDs, src.Sounds.Pad, rows, nil)
				if err != nil {
					t.Fatal(err)
				}
				logits = make([]float32, len(want.Logits))
				if err := m.Logits(t.Context(), logits, h); err != nil {
					t.Fatal(err)
				}
				return rows, logits
			}
			rows, got := logits(want.Features)
			near(t, "rows", want.Rows, rows, 1e-5)
			near(t, "logits", want.Logits, got, 1e-5)
			var library [][]float32
			for i, wave := range want.Waves {
				f, err := sound.Library(src.Model.Ear.Features, wave)
				if err != nil {
					t.Fatal(err)
				}
				if library = append(library, f); slices.Equal(f, want.Features[i]) {
					t.Error("the features of the library are those of the engine")
				}
			}
			if strings.HasSuffix(dir, "-wide") {
				return // clips without silence at their ends, of which the library has a part of another frame
			}
			_, got = logits(library)
			near(t, "logits of the library's features", want.Library, got, 1e-4)
		})
	}
}
