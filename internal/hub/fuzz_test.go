package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

// FuzzListing holds that no answer of a hub panics, and that no name it gives leaves its directory.
func FuzzListing(f *testing.F) {
	seeds := 0
	for _, rules := range [][]fakehub.Rule{nil, {{Fault: fakehub.ListNames}}, {{Fault: fakehub.ListNames, Names: []string{`..\LICENSE`}}},
		{{Fault: fakehub.ListSize, Bytes: -1 << 40}}} {
		h := fakehub.New()
		h.Repo(testRepo).Commit("main", tinyFiles())
		h.Fault(rules...)
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/api/models/"+testRepo+"/revision/main?blobs=true", nil))
		if _, err := parseListing(w.Body.Bytes()); (err == nil) != (rules == nil) {
			f.Fatalf("%+v: %v in %s", rules, err, w.Body)
		}
		f.Add(w.Body.Bytes())
		seeds++
	}
	if seeds == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseListing(b)
		if err != nil {
			if l != nil || !errors.Is(err, fault.ErrCorrupt) && !errors.Is(err, fault.ErrUnsupported) {
				t.Fatalf("%v, %v", l, err)
			}
			return
		}
		for i, file := range l.files {
			base := strings.TrimPrefix(file.Name, templatesDir+"/")
			if below(file.Name) {
				base = filepath.Base(file.Name)
			}
			if filepath.Base(base) != base || strings.ContainsAny(base, `/\:`) || base == file.Name && !wanted(base) && !below(file.Name) || file.Size < 0 {
				t.Fatalf("%+v", file)
			}
			if len(file.Blob) != 40 && len(file.Blob) != 64 || i > 0 && l.files[i-1].Name >= file.Name {
				t.Fatalf("%+v", file)
			}
		}
		// What a record keeps of the list reads back.
		text, err := json.Marshal(l.files)
		if err != nil {
			t.Fatal(err)
		}
		var again []remote
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		for i := range again {
			if again[i] != l.files[i] || again[i].check() != nil {
				t.Fatalf("%+v, %+v", again[i], l.files[i])
			}
		}
	})
}

// A list that is nested without end is rejected before it is read, regardless of its source.
func TestDeepLists(t *testing.T) {
	deep := []byte(`{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`)
	for name, parse := range map[string]func([]byte) error{
		"listing":    func(b []byte) error { _, err := parseListing(b); return err },
		"ModelScope": func(b []byte) error { _, _, err := parseModelScope(b, "master"); return err },
		"tree":       func(b []byte) error { _, err := parseTree(testCommit, b); return err },
		"tip":        func(b []byte) error { _, err := parseTip(b); return err },
		"index":      func(b []byte) error { _, err := parseIndex(b); return err },
	} {
		if err := parse(deep); !errors.Is(err, fault.ErrCorrupt) || !strings.Contains(err.Error(), "nested deeper") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzOther holds the same of the lists that ModelScope gives and huggingface_hub leaves in the cache, and of an index.
func FuzzOther(f *testing.F) {
	for _, seed := range []string{
		`{"Success":true,"Data":{"Files":[{"Path":"model.safetensors","Type":"blob","Size":1,"Sha256":"` + strings.Repeat("a", 64) + `","Revision":"` + testCommit + `","CommittedDate":1},{"Type":"tree"}],"LatestCommitter":{"ShortId":"01234567"}}}`,
		`{"Success":false,"Message":"no"}`,
		`{"format_version":1,"files":{"model.safetensors":{"size":1,"blob_id":"` + testCommit + `"},"../config.json":{}}}`,
		`{"format_version":1,"files":{"model.safetensors":{"size":1,"blob_id":"x","lfs_sha256":"` + strings.Repeat("a", 64) + `","lfs_size":2}}}`,
		`{"weight_map":{"a":"../x.safetensors"}}`,
		`{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(l *listing, err error) {
			if err != nil {
				status := (*StatusError)(nil)
				if l != nil || !errors.Is(err, fault.ErrCorrupt) && !errors.Is(err, fault.ErrUnsupported) && !errors.As(err, &status) {
					t.Fatalf("%v, %v", l, err)
				}
				return
			}
			if !isCommit(l.commit) {
				t.Fatal(l.commit)
			}
			for _, file := range l.files {
				if file.check() != nil || filepath.Base(file.Name) != file.Name && !below(file.Name) {
					t.Fatalf("%+v", file)
				}
			}
		}
		l, _, err := parseModelScope(b, "master")
		check(l, err)
		check(parseTree(testCommit, b))
		names, err := parseIndex(b)
		if err != nil && (names != nil || !errors.Is(err, fault.ErrCorrupt)) {
			t.Fatal(err)
		}
		for name := range names {
			if filepath.Base(name) != name || !strings.HasSuffix(name, ".safetensors") || !safePath(name) {
				t.Fatalf("%q", name)
			}
		}
	})
}

// FuzzHeader holds that no beginning of a file makes readHeader allocate more than the file has.
func FuzzHeader(f *testing.F) {
	f.Add(shard("a", 10, 0), int64(100))
	f.Add(shard("a", 10, 200_000), int64(1<<40))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), int64(8))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		open := func(_ context.Context, off, n int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b[min(off, int64(len(b))):min(off+n, int64(len(b)))])), nil
		}
		var total atomic.Int64
		h, err := readHeader(t.Context(), open, nil, size, &total, func(int) {})
		if err == nil && (int64(len(h)) > size || !bytes.HasPrefix(b, h) || total.Load() != int64(len(h))) {
			t.Fatalf("%d bytes of %d", len(h), len(b))
		}
	})
}
