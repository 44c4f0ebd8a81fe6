package safetensors

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// TestModules: the tensors of a module are named by its directory, also when only headers are here; a missing file is an error.
func TestModules(t *testing.T) {
	const dir = "../../testdata/sentence/embeddinggemma"
	plain, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	whole, err := OpenDir(dir, "2_Dense", "3_Dense")
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	heads := map[string]Head{}
	for _, name := range []string{singleFile, "2_Dense/" + singleFile, "3_Dense/" + singleFile} {
		if heads[name], err = ReadHead(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	headers, err := OpenHeaders(dir, heads, "2_Dense", "3_Dense")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Checkpoint{whole, headers} {
		if n := len(c.Tensors()); n != len(plain.Tensors())+2 {
			t.Errorf("%d tensors", n)
		}
		w, ok := tensor.ByName(c.Tensors())["3_Dense/linear.weight"]
		if !ok || !slices.Equal(w.Shape, tensor.Shape{48, 96}) || w.File != "3_Dense/"+singleFile {
			t.Errorf("%+v", w)
		}
	}
	if r, err := whole.Open("2_Dense/linear.weight"); err != nil || r.Size() != 4*96*64 {
		t.Error(err)
	}
	if _, err := OpenDir(dir, "2_Dense", "5_Dense"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestModulesOfShards: an index need not list the tensors of modules.
func TestModulesOfShards(t *testing.T) {
	dir := t.TempDir()
	const dense = "../../testdata/sentence/embeddinggemma/2_Dense/" + singleFile
	b, err := os.ReadFile(dense)
	if err == nil {
		err = errors.Join(os.Mkdir(filepath.Join(dir, "2_Dense"), 0o777), os.WriteFile(filepath.Join(dir, "2_Dense", singleFile), b, 0o666),
			os.WriteFile(filepath.Join(dir, "a.safetensors"), b, 0o666),
			os.WriteFile(filepath.Join(dir, indexFile), []byte(`{"weight_map": {"linear.weight": "a.safetensors"}}`), 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenDir(dir, "2_Dense")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := len(c.Tensors()); n != 2 {
		t.Errorf("%d tensors", n)
	}
}
