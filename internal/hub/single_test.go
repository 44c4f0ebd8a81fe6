package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

// A file gets its name outside the cache only when it is whole and right, and a broken download goes on.
func TestFetchFile(t *testing.T) {
	const name = shard1
	files := tinyFiles()
	h, _, _, o := realHub(t, files)
	sk, err := Headers(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "spool", name)

	h.Fault(fakehub.Rule{Fault: fakehub.Changed, Path: testRepo + "/" + name, Server: "storage"})
	if err := FetchFile(t.Context(), &sk.Snapshot, name, path, o); !errors.Is(err, fault.ErrCorrupt) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a wrong file has its name")
	}

	h.ClearFaults()
	if err := os.WriteFile(path+".incomplete", files[name][:1000], 0o666); err != nil {
		t.Fatal(err)
	}
	if err := FetchFile(t.Context(), &sk.Snapshot, name, path, o); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || sha256Hex(b) != sha256Hex(files[name]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	h.ResetStats()
	if err := FetchFile(t.Context(), &sk.Snapshot, name, path, o); err != nil || len(h.Stats().Requests) != 0 {
		t.Errorf("a file that is there: %v, %d requests", err, len(h.Stats().Requests))
	}
	if _, err := os.Stat(o.CacheDir); err == nil {
		if blobs, _ := filepath.Glob(filepath.Join(o.CacheDir, "*", "blobs", sha256Hex(files[name]))); len(blobs) > 0 {
			t.Error("it is in the cache")
		}
	}

	o.Offline = true
	for file, want := range map[string]error{"config.json": fault.ErrUnsupported, "none": fs.ErrNotExist, "../x": fs.ErrNotExist, name: fs.ErrNotExist} {
		if err := FetchFile(t.Context(), &sk.Snapshot, file, path+"2", o); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", file, err, want)
		}
	}
}
