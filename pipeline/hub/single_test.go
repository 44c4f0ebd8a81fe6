package hub

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// A file gets its name outside the cache only when it is whole and right, and a broken download goes on.
func TestFetchFile(t *testing.T) {
	const name = "model-00001-of-00002.safetensors"
	h := newFakeHub(t)
	o := h.options(t)
	sk, err := Headers(t.Context(), mainRef, o)
	if err != nil {
		// The fake's shards have no headers: the list is what counts.
		sk = &Skeleton{Snapshot: Snapshot{Repo: testRepo, Revision: testCommit, Files: []File{
			{Name: name, Size: int64(len(h.files[name])), SHA256: sha256Hex(h.files[name])},
			{Name: "config.json", Size: 10},
		}}}
	}
	path := filepath.Join(t.TempDir(), "spool", name)

	wrong := true
	h.answer = func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		if storage && wrong {
			b := make([]byte, len(h.files[name]))
			w.Write(b)
			return true
		}
		return false
	}
	if err := FetchFile(t.Context(), &sk.Snapshot, name, path, o); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a wrong file has its name")
	}

	wrong = false
	if err := os.WriteFile(path+".incomplete", h.files[name][:1000], 0o666); err != nil {
		t.Fatal(err)
	}
	if err := FetchFile(t.Context(), &sk.Snapshot, name, path, o); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || sha256Hex(b) != sha256Hex(h.files[name]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	before := len(h.seen(""))
	if err := FetchFile(t.Context(), &sk.Snapshot, name, path, o); err != nil || len(h.seen("")) != before {
		t.Errorf("a file that is there: %v, %d requests", err, len(h.seen(""))-before)
	}
	if _, err := os.Stat(o.CacheDir); err == nil {
		if blobs, _ := filepath.Glob(filepath.Join(o.CacheDir, "*", "blobs", sha256Hex(h.files[name]))); len(blobs) > 0 {
			t.Error("it is in the cache")
		}
	}

	o.Offline = true
	for file, want := range map[string]error{"config.json": tensor.ErrUnsupported, "none": fs.ErrNotExist, "../x": fs.ErrNotExist, name: fs.ErrNotExist} {
		if err := FetchFile(t.Context(), &sk.Snapshot, file, path+"2", o); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", file, err, want)
		}
	}
}
