package publish

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares with testdata/<test>/<name>.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(t.Name()), name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, diff)
	}
}

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

func TestPublishers(t *testing.T) {
	last := ""
	for _, p := range publishers {
		if p.key <= last {
			t.Errorf("%s is not in order or not unique", p.key)
		}
		last = p.key
		if p.doc == "" {
			t.Errorf("%s has no doc", p.key)
		}
		if info, err := os.Stat(filepath.Join("testdata", p.key)); err != nil || !info.IsDir() {
			t.Errorf("%s has no test directory: %v", p.key, err)
		}
		field, _ := json.Marshal(map[string]string{p.key: "x"})
		var entry Target
		if err := json.Unmarshal(field, &entry); err != nil || p.ref(entry) != "x" {
			t.Errorf("Target has no field %s", p.key)
		}
	}
}

func TestNew(t *testing.T) {
	base := t.TempDir()
	abs := filepath.Join(base, "elsewhere")
	tests := map[string]struct {
		target Target
		want   Dir
		err    string
	}{
		"relative": {Target{Dir: "dist/x"}, Dir{Path: filepath.Join(base, "dist", "x")}, ""},
		"absolute": {Target{Dir: abs, Replace: true}, Dir{Path: abs, Replace: true}, ""},
		"nothing":  {Target{Replace: true}, Dir{}, "known: dir (a directory of this machine)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := New(tc.target, base)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want an error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, ok := s.(Dir)
			if !ok || got.Path != tc.want.Path || got.Replace != tc.want.Replace {
				t.Errorf("got %#v, want %#v", s, tc.want)
			}
			if want := "dir " + tc.want.Path; s.String() != want {
				t.Errorf("String is %q, want %q", s, want)
			}
		})
	}
}
