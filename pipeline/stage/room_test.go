package stage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/recipes"
)

// A disk that is too full for the package is found before any work, wherever it is; what a place holds counts as room.
func TestRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "version: 1\nname: small\nmodel: {path: ../../arch/testdata/llama}\nquantize: {block: 32}\npublish: [{dir: " + filepath.ToSlash(dir) + "/out}]\n"
	r, err := recipes.Load([]byte(text), filepath.Join("testdata", "recipe.yaml"), Sections())
	if err != nil {
		t.Fatal(err)
	}
	run, err := New(r, pipeline.Limits{Memory: 1 << 30, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if run.Store, err = pipeline.OpenStore(filepath.Join(dir, "cache")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		full       string // the directory without room
		there      int64  // bytes in it
		wantRefuse bool
	}{
		{"cache", "cache", 0, true}, {"place", "out", 0, true}, {"a place that holds as much", "out", 1 << 20, false}, {"elsewhere", "other", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.there > 0 {
				at := filepath.Join(dir, c.full)
				if err := os.MkdirAll(at, 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(at, "file"), make([]byte, c.there), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			run.checkSpace = func(at string, need int64) error {
				if filepath.Base(at) == c.full && need > 0 {
					return &disk.FullError{Dir: at, Need: need}
				}
				return nil
			}
			err := run.Quantize.Prepare(t.Context(), run)
			if (err != nil) != c.wantRefuse || err != nil && !strings.Contains(err.Error(), "are needed for the files of this run") {
				t.Errorf("error %v", err)
			}
		})
	}
}
