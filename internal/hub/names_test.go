package hub

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
)

func TestVocabularies(t *testing.T) {
	for _, c := range []struct{ files, want []string }{
		{[]string{"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "config.json"}, []string{"tokenizer.json", "config.json"}},
		{[]string{"tokenizer.model", "tekken.json", "added_tokens.json"}, []string{"tokenizer.model", "added_tokens.json"}},
		{[]string{"merges.txt", "vocab.json", "vocab.txt"}, []string{"merges.txt", "vocab.json"}},
		{[]string{"tiktoken.model"}, []string{"tiktoken.model"}},
		{[]string{"config.json"}, []string{"config.json"}},
	} {
		for _, name := range c.files {
			if !wanted(name) {
				t.Errorf("%s is not wanted", name)
			}
		}
		got := withoutDuplicates(slices.Clone(c.files), func(s string) string { return s })
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v: %v, want %v", c.files, got, c.want)
		}
	}
	for _, name := range []string{"pytorch_model.bin", "spiece.model.bin", "training_args.bin"} {
		if wanted(name) {
			t.Errorf("%s is wanted", name)
		}
	}
}

// TestMaxSize: what no export would read is refused before it is read, or fetched.
func TestMaxSize(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for name, limit := range map[string]int64{"config.json": 16 << 20, "generation_config.json": 16 << 20, "tokenizer_config.json": 16 << 20,
		"tokenizer.json": 256 << 20, indexFile: maxRecord, "LICENSE": 16 << 20} {
		dir := t.TempDir()
		for n, b := range tinyFiles() {
			if filepath.Dir(n) == "." {
				if err := os.WriteFile(filepath.Join(dir, n), b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, size := range []int64{limit, limit + 1} {
			if err := errors.Join(os.WriteFile(filepath.Join(dir, name), nil, 0o666), os.Truncate(filepath.Join(dir, name), size)); err != nil {
				t.Fatal(err)
			}
			_, err := listDir(dir)
			_, listErr := newListing(testCommit, 2, func(i int) (string, *int64, string, string) {
				return []string{singleFile, name}[i], &size, "", strings.Repeat("a", 64)
			})
			for _, err := range []error{err, listErr} {
				want := fmt.Sprintf("%s has %d bytes, at most %d are read", name, size, limit)
				if size > limit && (!errors.Is(err, fault.ErrCorrupt) || !strings.Contains(err.Error(), want)) || size == limit && err != nil {
					t.Errorf("%s of %d bytes: %v", name, size, err)
				}
			}
			if size > limit {
				if _, err := disk.ReadFile(filepath.Join(dir, name), limit); !errors.Is(err, fault.ErrCorrupt) {
					t.Error(err)
				}
			}
		}
	}
}
