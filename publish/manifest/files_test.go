package manifest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// smallPackage writes a package of three files and returns its manifest and directory.
func smallPackage(t *testing.T) (*Manifest, string) {
	t.Helper()
	dir := t.TempDir()
	m := full()
	m.Files, m.Tensors = nil, nil
	for name, text := range map[string]string{"config.json": "{}", "llm.mnn.weight": "weights", "sub/dir/x.bin": ""} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		write(t, path, text)
		f, err := HashFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		f.Name = name
		m.Files = append(m.Files, f)
	}
	m.Sort()
	write(t, filepath.Join(dir, FileName), string(marshal(t, m)))
	return m, dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	m, dir := smallPackage(t)
	got, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, sum, _ := m.Seal(); got.Digest != sum {
		t.Errorf("digest %s, want %s", got.Digest, sum)
	}
	if got.Bytes() != 9 {
		t.Errorf("package of %d bytes, want 9", got.Bytes())
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no manifest: %v", err)
	}
	odd := t.TempDir()
	write(t, filepath.Join(odd, FileName, "x"), "")
	if _, err := Open(odd); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("manifest is a directory: %v", err)
	}
	write(t, filepath.Join(dir, FileName), "{}")
	if _, err := Open(dir); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), FileName) {
		t.Errorf("broken manifest: %v", err)
	}
}

func TestVerifyFiles(t *testing.T) {
	remove := func(t *testing.T, path string) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		damage func(t *testing.T, dir string)
		want   []string // one part of every line
	}{
		"intact":      {func(t *testing.T, dir string) {}, nil},
		"no manifest": {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, FileName)) }, nil},
		"flipped bit": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "llm.mnn.weight"), "weighus") }, []string{"llm.mnn.weight has sha256"}},
		"grown": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "config.json"), "{} ") },
			[]string{"config.json has 3 bytes and the manifest says 2"}},
		"truncated":   {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "config.json"), "") }, []string{"config.json has 0 bytes"}},
		"missing":     {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "config.json")) }, []string{"config.json is missing"}},
		"missing dir": {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "sub")) }, []string{"sub/dir/x.bin is missing"}},
		"extra file":  {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "sub", "notes"), "") }, []string{`"sub/notes" is not in the manifest`}},
		"extra dir": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "tmp", "cache"), "")
		}, []string{`"tmp" is not in the manifest`}},
		"directory": {func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "config.json"))
			write(t, filepath.Join(dir, "config.json", "x"), "")
		}, []string{"config.json is not a regular file"}},
		"manifest is a directory": {func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, FileName))
			write(t, filepath.Join(dir, FileName, "x"), "")
		}, []string{`"manifest.json" is not in the manifest`}},
		"signed":            {func(t *testing.T, dir string) { write(t, filepath.Join(dir, SignatureName), "{}") }, nil},
		"longest signature": {func(t *testing.T, dir string) { sparse(t, filepath.Join(dir, SignatureName), MaxSignature) }, nil},
		"long signature": {func(t *testing.T, dir string) {
			sparse(t, filepath.Join(dir, SignatureName), 10<<30)
		}, []string{"manifest.sigstore.json is not a regular file of at most 1048576 bytes"}},
		"signature is a directory": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, SignatureName, "x"), "")
		}, []string{"manifest.sigstore.json is not a regular file"}},
		"signature of a part": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "sub", SignatureName), "{}")
		}, []string{`"sub/manifest.sigstore.json" is not in the manifest`}},
		"several": {func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "config.json"))
			write(t, filepath.Join(dir, "llm.mnn.weight"), "WEIGHTS")
			write(t, filepath.Join(dir, "a"), "")
			write(t, filepath.Join(dir, "b"), "")
		}, []string{"config.json is missing", "llm.mnn.weight has sha256", `"a" is not`, `"b" is not`}},
		"many": {func(t *testing.T, dir string) {
			for i := range maxExtra + 5 {
				write(t, filepath.Join(dir, "x"+strings.Repeat("x", i)), "")
			}
		}, append(make([]string, maxExtra), "5 more files")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, dir := smallPackage(t)
			tc.damage(t, dir)
			err := m.VerifyFiles(t.Context(), dir)
			if len(tc.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, tensor.ErrCorrupt) {
				t.Fatalf("got %v, want tensor.ErrCorrupt", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.want) {
				t.Fatalf("got %d lines, want %d:\n%v", len(lines), len(tc.want), err)
			}
			for i, want := range tc.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %q lacks %q", lines[i], want)
				}
			}
		})
	}
}

func TestVerifyFilesSymlink(t *testing.T) {
	m, dir := smallPackage(t)
	outside := filepath.Join(t.TempDir(), "weights")
	write(t, outside, "weights")
	inside := filepath.Join(dir, "llm.mnn.weight")
	if err := os.Remove(inside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, inside); err != nil {
		t.Skipf("symbolic links cannot be made here: %v", err)
	}
	if err := m.VerifyFiles(t.Context(), dir); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("linked file: %v", err)
	}
}

// sparse makes a file of a size that takes no space.
func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	write(t, path, "")
	if err := os.Truncate(path, size); err != nil {
		t.Skipf("no file of %d bytes can be made here: %v", size, err)
	}
}

func TestReadSignature(t *testing.T) {
	_, dir := smallPackage(t)
	if data, err := ReadSignature(dir); data != nil || err != nil {
		t.Errorf("no signature: %q, %v", data, err)
	}
	path := filepath.Join(dir, SignatureName)
	write(t, path, "{}")
	if data, err := ReadSignature(dir); string(data) != "{}" || err != nil {
		t.Errorf("signature: %q, %v", data, err)
	}
	sparse(t, path, MaxSignature+1)
	if _, err := ReadSignature(dir); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("long signature: %v", err)
	}
	if _, err := ReadSignature(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no package: %v", err)
	}
}

func TestSignatureSymlink(t *testing.T) {
	m, dir := smallPackage(t)
	outside := filepath.Join(t.TempDir(), "signature")
	write(t, outside, "{}")
	if err := os.Symlink(outside, filepath.Join(dir, SignatureName)); err != nil {
		t.Skipf("symbolic links cannot be made here: %v", err)
	}
	if err := m.VerifyFiles(t.Context(), dir); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), SignatureName) {
		t.Errorf("verified: %v", err)
	}
	if _, err := ReadSignature(dir); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
	if extra, err := m.Extra(dir); err != nil || len(extra) != 1 {
		t.Errorf("extra: %q, %v", extra, err)
	}
}

func TestVerifyFilesErrors(t *testing.T) {
	m, dir := smallPackage(t)
	if err := m.VerifyFiles(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.VerifyFiles(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestExtra(t *testing.T) {
	m, dir := smallPackage(t)
	write(t, filepath.Join(dir, "sub", "b"), "")
	write(t, filepath.Join(dir, "a", "c", "d"), "")
	got, err := m.Extra(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "sub/b"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHashFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bin")
	write(t, path, "a")
	got, err := HashFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(File{Name: "x.bin", Size: 1, SHA256: sumA}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := HashFile(t.Context(), filepath.Dir(path)); err == nil {
		t.Error("a directory was hashed")
	}
	if runtime.GOOS != "windows" {
		if _, err := HashFile(t.Context(), os.DevNull); err == nil {
			t.Error("a device was hashed")
		}
	}
}
