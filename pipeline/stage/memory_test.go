package stage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/recipes"
)

// A limit that some part of the run cannot keep is refused before anything is made, with the least that suffices, which then
// does.
func TestLeastMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct{ name, sections, what string }{
		{"verification", "quantize: {bits: 16}\nverify: {perplexity: {window: 500, windows: 1, max_source: 1000}}", "verification with windows of 500 tokens"},
		{"calibration", watch + unverified + "\nquantize: {method: gptq, block: 32}", "calibration, one layer at a time"},
		{"tuning", watch + unverified + "\nquantize: {method: [rtn, {distill: {steps: 1, tokens: 65536}}], block: 32}", "distill, the whole model at a time"},
		{"weights", unverified + "\nquantize: {block: 32}", "writing weights"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+"llama", c.sections)
			_, err := w.run(t, "limits.memory=1MiB")
			var refused *recipes.Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), "limits.memory") || !strings.Contains(err.Error(), c.what) {
				t.Fatalf("%v, want a refusal for %s", err, c.what)
			}
			if entries, _ := filepath.Glob(filepath.Join(w.cache(), "*-*")); len(entries) > 0 {
				t.Errorf("the cache has %q", entries)
			}
			_, need, _ := strings.Cut(err.Error(), "needs ")
			need, _, _ = strings.Cut(need, " of memory")
			least, err := recipes.ParseSize(need)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.run(t, "limits.memory="+least.String()); err != nil {
				t.Errorf("with %s: %v", least, err)
			}
		})
	}
}

// Storage that a matrix cannot have is refused before the model writes text for hours.
func TestStorageFirst(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"llama", watch+unverified+"\nquantize: {method: gptq, block: 128}")
	_, err := w.run(t)
	if err == nil || !strings.Contains(err.Error(), "columns do not divide into blocks of 128") {
		t.Fatal(err)
	}
	if entries, _ := filepath.Glob(filepath.Join(w.cache(), "*-*")); len(entries) > 0 {
		t.Errorf("the cache has %q", entries)
	}
}

// Verification that does not fit the limit says so; no check fails for it.
func TestVerifyWithin(t *testing.T) {
	t.Parallel()
	w := newWork(t, families+"llama", unverified+"\nquantize: {block: 32}")
	w.must(t)
	o, err := stage.OptionsOf(nil, pipeline.Limits{Memory: 1 << 20, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	var little *assemble.MemoryError
	if _, err := stage.VerifyPackage(t.Context(), w.out(), families+"llama", o); !errors.As(err, &little) || little.Need <= 1<<20 {
		t.Errorf("error %v", err)
	}
}

// Places that cannot take the package are found before any work: an occupied directory, another package without replace, a
// file where a directory is needed.
func TestPlacesFirst(t *testing.T) {
	t.Parallel()
	base := unverified + "\nquantize: {block: 32}\npublish: [{dir: out}]"
	for _, c := range []struct {
		name, what string
		occupy     func(t *testing.T, w work)
	}{
		{"files", "contains files but no package", func(t *testing.T, w work) {
			write(t, filepath.Join(w.dir, "out", "note.txt"))
		}},
		{"a file", "is not a directory", func(t *testing.T, w work) {
			write(t, filepath.Join(w.dir, "out"))
		}},
		{"another package", "contains another package", func(t *testing.T, w work) {
			w.must(t, "quantize.bits=8")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+"llama", base)
			c.occupy(t, w)
			if err := os.RemoveAll(w.cache()); err != nil {
				t.Fatal(err)
			}
			_, err := w.run(t)
			if err == nil || !strings.Contains(err.Error(), c.what) || !strings.Contains(err.Error(), "publish: dir ") {
				t.Fatalf("%v, want %s", err, c.what)
			}
			if entries, _ := filepath.Glob(filepath.Join(w.cache(), "*-*")); len(entries) > 0 {
				t.Errorf("the cache has %q", entries)
			}
		})
	}
	t.Run("same package", func(t *testing.T) {
		t.Parallel()
		w := newWork(t, families+"llama", base)
		w.must(t)
		w.must(t)
	})
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
}
