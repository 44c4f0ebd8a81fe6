package verify_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/verify"
)

// sentences is the directory of the checkpoints that turn texts into vectors.
const sentences = "../testdata/sentence"

// verdict verifies the package in dir against a checkpoint and returns the checks that failed, and all that ran.
func verdict(t *testing.T, dir, checkpoint string) (failed, ran []string, r *verify.Result) {
	t.Helper()
	src, err := source.Open(t.Context(), source.Origin{Dir: checkpoint}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := verify.Options{Text: verify.BuiltIn, Window: 96, Windows: 1, Bits: 8, Checks: verify.NewChecks(), Threads: 2, Memory: 256 << 20}
	o.Checks.Tokenizer.Strings = 300
	s, err := assemble.Subject(dir, m, src, quant.RTN{}.Closeness(), false, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Package.Close()
	if r, err = verify.Run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		if !c.Skipped {
			ran = append(ran, c.Name)
		}
	}
	return r.Failed(), ran, r
}

// TestVectors: packages of embedding models and rerankers pass their checks, with limits of their own, and fail the right one if the
// source has another pooling, other weights or another tokenizer.
func TestVectors(t *testing.T) {
	for i, name := range []string{"bert-cls", "xlm-roberta-pairs", "qwen3-embedding"} {
		if testing.Short() && i > 0 {
			break
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := filepath.Join(sentences, name)
			dir, err := stagetest.Export(t.Context(), t.TempDir(), from, "quantize: {bits: 8, block: row}")
			if err != nil {
				t.Fatal(err)
			}
			failed, ran, r := verdict(t, dir, from)
			want := []string{"layout", "coverage", "weights", "tokenizer", "graph", "layers", "vectors", "activations"}
			if len(failed) > 0 || !slices.Equal(ran, want) {
				t.Errorf("failed %v of %v, want %v", failed, ran, want)
			}
			metric := "cosine_distance"
			if strings.Contains(name, "pairs") {
				metric = "score_error"
			}
			if v := r.Metrics[metric]; !(v.Value > 0 && v.Value < 0.5) || r.Metrics[metric+"_float"].Value <= 0 || r.Metrics["kl"].Value != 0 {
				t.Errorf("metrics %v", r.Metrics)
			}
			m, err := manifest.Open(dir)
			if err != nil || m.Task == "" || len(m.Goldens) > 0 {
				t.Errorf("task %q, %d goldens, %v", m.Task, len(m.Goldens), err)
			}
		})
	}
	for i, c := range []struct {
		name, checkpoint, file string
		change                 func(b []byte) []byte
		fails                  string
	}{
		{"pooling", "bert-cls", "1_Pooling/config.json", func(b []byte) []byte {
			b = bytes.Replace(b, []byte(`"pooling_mode_cls_token": true`), []byte(`"pooling_mode_cls_token": false`), 1)
			return bytes.Replace(b, []byte(`"pooling_mode_mean_tokens": false`), []byte(`"pooling_mode_mean_tokens": true`), 1)
		}, "graph"},
		{"weights", "bert-cls", "model.safetensors", func(b []byte) []byte {
			for i := len(b) - 20000; i < len(b); i += 2 { // the signs of the last tensors
				b[i+1] ^= 0x80
			}
			return b
		}, "vectors"},
		{"scores", "xlm-roberta-pairs", "model.safetensors", func(b []byte) []byte {
			for i := len(b) - 20000; i < len(b); i += 2 {
				b[i+1] ^= 0x80
			}
			return b
		}, "vectors"},
		{"ids", "bert-cls", "tokenizer.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"lowercase": true`), []byte(`"lowercase": false`), 1)
		}, "vectors"},
	} {
		if testing.Short() && i > 0 {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from := filepath.Join(sentences, c.checkpoint)
			dir, err := stagetest.Export(t.Context(), t.TempDir(), from, "quantize: {bits: 8, block: row}\nverify: {enabled: false}")
			if err != nil {
				t.Fatal(err)
			}
			other := t.TempDir()
			if err := os.CopyFS(other, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(other, filepath.FromSlash(c.file))
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := c.change(slices.Clone(b))
			if bytes.Equal(b, changed) {
				t.Fatal("nothing changed")
			}
			if err := os.WriteFile(path, changed, 0o666); err != nil {
				t.Fatal(err)
			}
			if failed, _, r := verdict(t, dir, other); !slices.Contains(failed, c.fails) {
				t.Errorf("failed %v, want %s: %+v", failed, c.fails, r.Checks)
			}
		})
	}
}
