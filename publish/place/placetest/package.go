// Package placetest is what tests of places share: packages, servers that listen and go wrong, and what must hold of a
// place whatever its kind.
package placetest

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// Package makes a package whose files hold the text.
func Package(t testing.TB, text string) place.Package {
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
		Write(t, path, content)
		f, err := manifest.HashFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		f.Name = name
		m.Files = append(m.Files, f)
	}
	m.Sort()
	return place.Package{Dir: dir, Manifest: m}
}

// Write writes a file, and makes its directory.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Tree maps every path below dir to its content, "/" for directories.
func Tree(t testing.TB, dir string) map[string]string {
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

// Publish publishes a package.
func Publish(t testing.TB, s place.Store, p place.Package) place.Receipt {
	t.Helper()
	r, err := place.To(t.Context(), s, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Want demands that dir holds exactly p, and that nothing of ours is next to it.
func Want(t testing.TB, dir string, p place.Package) {
	t.Helper()
	want := Tree(t, p.Dir)
	data, err := p.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want[manifest.FileName] = string(data)
	if diff := cmp.Diff(want, Tree(t, dir)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", filepath.Base(dir), diff)
	}
	Alone(t, dir)
}

// Alone demands that nothing of ours is next to a directory.
func Alone(t testing.TB, target string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(target))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(target) && strings.Contains(e.Name(), filepath.Base(target)) {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// Big has a weight file of so many bytes.
func Big(t testing.TB, size int) place.Package {
	p := Package(t, "big")
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i * i >> 8)
	}
	Write(t, filepath.Join(p.Dir, "llm.mnn.weight"), string(b))
	f, err := manifest.HashFile(t.Context(), filepath.Join(p.Dir, "llm.mnn.weight"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Manifest.Files {
		if p.Manifest.Files[i].Name == f.Name {
			p.Manifest.Files[i] = f
		}
	}
	return p
}

// Signed is the package with a signature.
func Signed(t testing.TB, p place.Package, text string) place.Package {
	t.Helper()
	Write(t, filepath.Join(p.Dir, manifest.SignatureName), text)
	return p
}

// SignatureOf is that of the package in dir, "" if it has none.
func SignatureOf(t testing.TB, dir string) string {
	t.Helper()
	b, err := manifest.ReadSignature(dir)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// Setenv sets variables of the environment, of which pairs has names and values in turn.
func Setenv(t *testing.T, pairs ...string) {
	for p := range slices.Chunk(pairs, 2) {
		t.Setenv(p[0], p[1])
	}
}

// Quick is the patience of tests: they do not pause, but a busy machine may be slow.
var Quick = transfer.Options{Pause: time.Millisecond, Stall: 5 * time.Second}

// WantOrigin demands that an origin gives exactly p.
func WantOrigin(t testing.TB, o place.Origin, p place.Package) {
	t.Helper()
	b, err := o.Read(t.Context(), manifest.FileName, manifest.MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	_, sum, err := p.Manifest.Seal()
	if err != nil || m.Digest != sum {
		t.Errorf("%s holds %s, not %s", o, m.Digest, sum)
	}
	for _, f := range m.Files {
		if f.Size == 0 {
			continue
		}
		r, err := o.Range(f)(t.Context(), 0, f.Size)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		got, err := manifest.Hash(t.Context(), r)
		if err := errors.Join(err, r.Close(), f.Match(got)); err != nil {
			t.Error(err)
		}
		if r, err = o.Range(f)(t.Context(), f.Size-1, 1); err != nil {
			t.Fatal(err)
		}
		last, err := io.ReadAll(r)
		if len(last) != 1 || err != nil {
			t.Errorf("%s: last byte: %q, %v", f.Name, last, err)
		}
		r.Close()
	}
}
