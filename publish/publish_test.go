package publish

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/publish/manifest"
)

// newPackage makes a package whose files hold the text.
func newPackage(t testing.TB, text string) Package {
	t.Helper()
	dir := t.TempDir()
	m := &manifest.Manifest{
		Version: manifest.Version, Name: "tiny", Tool: manifest.Tool{Name: "llmexport", Version: "0.1.0"},
		MinimumEngine: "3.6.0", Target: manifest.Target{Engine: "3.6", Backends: []string{"cpu"}},
		Recipe: json.RawMessage(`{"version":1}`),
	}
	for _, name := range []string{"config.json", "llm.mnn", "llm.mnn.weight", "sub/empty.bin"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		content := name + " " + text
		if name == "sub/empty.bin" {
			content = ""
		}
		write(t, path, content)
		f, err := manifest.HashFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		f.Name = name
		m.Files = append(m.Files, f)
	}
	m.Sort()
	return Package{Dir: dir, Manifest: m}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree maps every path below dir to its content, "/" for directories.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			got[filepath.ToSlash(rel)] = "/"
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			got[filepath.ToSlash(rel)] = "-> " + target
			return err
		default:
			data, err := os.ReadFile(path)
			got[filepath.ToSlash(rel)] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
