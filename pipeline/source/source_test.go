package source

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPythonJSON reads a checkpoint whose JSON files are as Python writes them and JSON does not allow.
func TestPythonJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../arch/testdata/llama")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "generation_config.json"} {
		b, err := ReadOptional(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			b = []byte(`{"eos_token_id": 2}`)
		}
		b = append([]byte("\ufeff"), bytes.Replace(b, []byte("{"), []byte(`{"my_key": [NaN, -Infinity], `), 1)...)
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	src, err := Open(t.Context(), Origin{Dir: dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if want := []string{"keys of config.json without effect: my_key"}; !slices.Equal(src.Decoder.Notes, want) {
		t.Errorf("notes %q", src.Decoder.Notes)
	}
}
