package safetensors

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// headsOf takes the beginnings of all shards of a directory, and the shards away from it.
func headsOf(t *testing.T, dir string) (heads map[string]Head, elsewhere string) {
	t.Helper()
	heads, elsewhere = map[string]Head{}, t.TempDir()
	paths, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	for _, p := range paths {
		h, err := ReadHead(p)
		if err != nil {
			t.Fatal(err)
		}
		heads[filepath.Base(p)] = h
		if err := os.Rename(p, filepath.Join(elsewhere, filepath.Base(p))); err != nil {
			t.Fatal(err)
		}
	}
	return heads, elsewhere
}

// Headers show the same tensors as whole files; weights are there from Attach to Detach and are never zeros in their place.
func TestOpenHeaders(t *testing.T) {
	for name, files := range map[string]map[string][]byte{"shards": sharded(t), "one file": {singleFile: write(t, []tensor.Info{infoA, infoB})}} {
		t.Run(name, func(t *testing.T) {
			dir := lay(t, files)
			whole, err := OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer whole.Close()
			heads, elsewhere := headsOf(t, dir)
			c, err := OpenHeaders(dir, heads)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if d := cmp.Diff(whole.Tensors(), c.Tensors()); d != "" {
				t.Error(d)
			}
			if !slices.Equal(whole.Files(), c.Files()) {
				t.Errorf("files %v", c.Files())
			}
			for _, info := range c.Tensors() {
				r, err := c.Open(info.Name)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(r); !errors.Is(err, ErrNoWeights) || len(b) > 0 {
					t.Errorf("%s: %d bytes, %v", info.Name, len(b), err)
				}
				if err := c.Attach(info.File, filepath.Join(elsewhere, info.File)); err != nil {
					t.Fatal(err)
				}
				w, _ := whole.Open(info.Name)
				want, _ := io.ReadAll(w)
				r.Seek(0, io.SeekStart)
				if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) || int64(len(got)) != info.Size {
					t.Errorf("%s: other bytes, %v", info.Name, err)
				}
				if err := c.Detach(info.File); err != nil {
					t.Error(err)
				}
				if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrNoWeights) {
					t.Errorf("%s: behind Detach: %v", info.Name, err)
				}
			}
			if err := c.Detach(c.Files()[0]); err != nil {
				t.Errorf("nothing to take away: %v", err)
			}
		})
	}
}

func TestOpenHeadersRefuses(t *testing.T) {
	dir := lay(t, sharded(t))
	heads, _ := headsOf(t, dir)
	for _, c := range []struct {
		name string
		edit func(map[string]Head)
		want error
	}{
		{"a shard is missing", func(m map[string]Head) { delete(m, "s2.safetensors") }, fs.ErrNotExist},
		{"cut", func(m map[string]Head) { h := m["s1.safetensors"]; h.Bytes = h.Bytes[:20]; m["s1.safetensors"] = h }, tensor.ErrCorrupt},
		{"empty", func(m map[string]Head) { m["s1.safetensors"] = Head{} }, tensor.ErrCorrupt},
		{"another size", func(m map[string]Head) { h := m["s1.safetensors"]; h.Size++; m["s1.safetensors"] = h }, tensor.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := map[string]Head{}
			for k, v := range heads {
				m[k] = v
			}
			c.edit(m)
			if ck, err := OpenHeaders(dir, m); !errors.Is(err, c.want) || ck != nil {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A file that is not the one whose header was read is refused.
func TestAttachRefuses(t *testing.T) {
	dir := lay(t, sharded(t))
	heads, elsewhere := headsOf(t, dir)
	c, err := OpenHeaders(dir, heads)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	path := filepath.Join(elsewhere, "s1.safetensors")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"cut": whole[:len(whole)-1], "longer": append(slices.Clone(whole), 0), "empty": nil, "another header": write(t, []tensor.Info{infoB, infoA})[:len(whole)],
		"renamed tensor": bytes.Replace(whole, []byte("a.weight"), []byte("x.weight"), 1),
	} {
		if bytes.Equal(b, whole) {
			continue
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := c.Attach("s1.safetensors", path); !errors.Is(err, tensor.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Attach("s1.safetensors", filepath.Join(elsewhere, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := c.Attach("s9.safetensors", path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such shard: %v", err)
	}
}

func TestReadHeadRefuses(t *testing.T) {
	for name, b := range map[string][]byte{"empty": nil, "short": {1, 2, 3}, "long header": {0, 0, 0, 0, 0, 0, 0, 1}, "cut": {100, 0, 0, 0, 0, 0, 0, 0, '{'}} {
		path := filepath.Join(t.TempDir(), "x.safetensors")
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if h, err := ReadHead(path); !errors.Is(err, tensor.ErrCorrupt) || h.Bytes != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
