package hub

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestModuleWeights: the weights of a layer after the pooling are downloaded, or their headers, and found in a directory.
func TestModuleWeights(t *testing.T) {
	const dense = "2_Dense/model.safetensors"
	files := with(tinyFiles(), map[string][]byte{dense: shard("linear.weight", 100, 0)})
	_, _, _, o := realHub(t, files)
	headers, err := Headers(t.Context(), mainRef, o)
	if err != nil || headers.Headers[dense].Size != int64(len(files[dense])) {
		t.Error(headers, err)
	}
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(s.Dir, filepath.FromSlash(dense))); err != nil || !bytes.Equal(b, files[dense]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	l, err := Resolve(t.Context(), Ref{Path: s.Dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]File{s.Files, l.Files} {
		if !slices.ContainsFunc(list, func(f File) bool { return f.Name == dense }) || len(list) != len(tinyWanted)+1 {
			t.Errorf("%+v", list)
		}
	}
}
