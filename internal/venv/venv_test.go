package venv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEngines(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"mnn-3.6.1", "mnn-3.5.0", "transformers"} {
		if err := os.MkdirAll(filepath.Join(root, ".venv", name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		asked string
		want  []string
	}{
		{"", []string{"3.5.0", "3.6.1"}},
		{"3.6.1", []string{"3.6.1"}},
		{"3.6.1 3.5.0", []string{"3.5.0", "3.6.1"}},
		{"3.6.1 3.6.0", nil},
	} {
		t.Setenv("LLMEXPORT_ENGINES", tt.asked)
		list, err := Engines(root)
		var got []string
		for _, dir := range list {
			got = append(got, Release(dir))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want != nil) {
			t.Errorf("%q: %v\n%s", tt.asked, err, diff)
		}
	}
}
