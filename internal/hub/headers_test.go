package hub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

// TestHeaders reads the headers of shards, of which one is longer than the first part, and nothing else of them.
func TestHeaders(t *testing.T) {
	files := with(tinyFiles(), map[string][]byte{shard1: shard("a", 5_000_000, 0)})
	h, _, commit, o := realHub(t, files)
	s, err := Headers(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Revision != commit || len(s.Headers) != 2 {
		t.Errorf("%+v", s.Snapshot)
	}
	for _, name := range []string{shard1, shard2} {
		b := files[name]
		want := b[:8+binary.LittleEndian.Uint64(b)]
		if got := s.Headers[name]; got.Size != int64(len(b)) || !bytes.Equal(got.Header, want) {
			t.Errorf("%s: %d bytes of %d", name, len(got.Header), got.Size)
		}
		if _, err := os.Stat(filepath.Join(s.Dir, name)); err == nil {
			t.Errorf("%s was fetched", name)
		}
	}
	var names []string
	for _, f := range s.Files {
		names = append(names, f.Name)
		if strings.HasSuffix(f.Name, ".safetensors") {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(s.Dir, f.Name)); err != nil || !bytes.Equal(b, files[f.Name]) {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if !slices.Equal(names, tinyWanted) {
		t.Errorf("files %q", names)
	}
	ranges := func(name string) (out []string) {
		for _, r := range h.Stats().Requests {
			if r.Server == "storage" && r.File == testRepo+"/"+name {
				out = append(out, r.Range)
			}
		}
		return out
	}
	if got := ranges(shard1); !slices.Equal(got, []string{"bytes=0-131071"}) {
		t.Errorf("%s: %q", shard1, got)
	}
	if got := ranges(shard2); !slices.Equal(got, []string{"bytes=0-131071", "bytes=131072-200007"}) {
		t.Errorf("%s: %q", shard2, got)
	}
	// It is not taken for a snapshot.
	o.Offline = true
	if _, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: commit}, o); err == nil {
		t.Error("a snapshot without weights counts as complete")
	}
	o.Offline = false

	// With the weights there it is a snapshot, and nothing is asked.
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []Ref{{Repo: testRepo, Revision: commit}, mainRef, {Path: s.Dir}} {
		h.ResetStats()
		s, err := Headers(t.Context(), ref, o)
		if err != nil || len(s.Headers) != 0 {
			t.Fatalf("%d headers, %v", len(s.Headers), err)
		}
		for _, r := range h.Stats().Requests {
			if r.File != "" {
				t.Errorf("%v: asked for %s", ref, r.File)
			}
		}
	}
	// With one of them there the other is asked for.
	if err := os.Remove(filepath.Join(s.Dir, shard1)); err != nil {
		t.Fatal(err)
	}
	h.ResetStats()
	s, err = Headers(t.Context(), mainRef, o)
	if err != nil || len(s.Headers) != 2 || len(ranges(shard2)) != 0 || len(ranges(shard1)) != 1 {
		t.Errorf("%v, %q, %q", err, ranges(shard1), ranges(shard2))
	}
}

func TestHeadersRefused(t *testing.T) {
	long := func(n uint64, size int) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), make([]byte, size)...)
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"short", []byte("abc"), "not a safetensors file"},
		{"too long", long(maxHeader+1, 10), "exceeds the limit of 100000000"},
		{"longer than the file", long(1000, 10), "does not fit a file of 18"},
		{"overflow", long(1<<63+5, 10), "exceeds the limit of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, o := realHub(t, with(tinyFiles(), map[string][]byte{singleFile: c.b}))
			s, err := Headers(t.Context(), mainRef, o)
			if s != nil || !errors.Is(err, fault.ErrCorrupt) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), singleFile) {
				t.Errorf("%v", err)
			}
		})
	}
	var total atomic.Int64
	total.Store(maxHeaders)
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, shard("a", 10, 0), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readHeader(t.Context(), fromFile(path), nil, int64(len(shard("a", 10, 0))), &total, func(int) {}); !errors.Is(err, fault.ErrUnsupported) {
		t.Error(err)
	}
}

// TestHeadersTrouble gets there in spite of a server that breaks.
func TestHeadersTrouble(t *testing.T) {
	files := tinyFiles()
	for _, rule := range []fakehub.Rule{
		{Fault: fakehub.Cut, After: 1000, Times: 2},
		{Fault: fakehub.Expired, Times: 1, Server: "storage"},
		{Fault: fakehub.Status, Status: 503, Times: 2},
		{Fault: fakehub.IgnoreRange},
	} {
		h, _, _, o := realHub(t, files)
		rule.Path = testRepo + "/" + shard2
		h.Fault(rule)
		s, err := Headers(t.Context(), mainRef, o)
		if err != nil || len(s.Headers) != 2 || len(s.Headers[shard2].Header) != 200_008 {
			t.Errorf("%s: %v", rule.Fault, err)
		}
		if h.Met()[0] == 0 {
			t.Errorf("%s: not met", rule.Fault)
		}
	}
}

// TestIndex holds that only the shards which the index names are fetched, and that one it names must be there.
func TestIndex(t *testing.T) {
	index := func(text string) map[string][]byte {
		return with(tinyFiles(), map[string][]byte{indexFile: []byte(text)})
	}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  []string // shards; nil for an error
		is    error
		text  string
	}{
		{"two of three", tinyFiles(), []string{shard1, shard2}, nil, ""},
		{"one of three", index(`{"weight_map":{"c":"other.safetensors"}}`), []string{"other.safetensors"}, nil, ""},
		{"one file", with(tinyFiles(), map[string][]byte{singleFile: shard("a", 10, 0)}), []string{singleFile}, nil, ""},
		{"not there", index(`{"weight_map":{"c":"gone.safetensors","d":"other.safetensors"}}`), nil, fault.ErrCorrupt, "the shard gone.safetensors"},
		{"none", index(`{"weight_map":{}}`), nil, fault.ErrCorrupt, "names no shards"},
		{"no index", index(`[]`), nil, fault.ErrCorrupt, indexFile},
		{"outside", index(`{"weight_map":{"c":"../../other.safetensors"}}`), nil, fault.ErrCorrupt, "shard"},
		{"other files", index(`{"weight_map":{"c":"config.json"}}`), nil, fault.ErrCorrupt, "config.json"},
		{"shards without index", with(tinyFiles(), map[string][]byte{indexFile: nil}), nil, fault.ErrUnsupported, "no safetensors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _, _, o := realHub(t, c.files)
			s, err := Resolve(t.Context(), mainRef, o)
			sent := int64(0)
			for _, name := range []string{shard1, shard2, "other.safetensors", singleFile} {
				if !slices.Contains(c.want, name) {
					sent += h.Sent(testRepo + "/" + name)
				}
			}
			if sent > 0 {
				t.Errorf("%d bytes of other shards were fetched", sent)
			}
			if c.want == nil {
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range s.Files {
				if isShard(f.Name) {
					got = append(got, f.Name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q", got)
			}
			// The same of a directory.
			if err := os.WriteFile(filepath.Join(s.Dir, "stray.safetensors"), nil, 0o666); err != nil {
				t.Fatal(err)
			}
			l, err := Resolve(t.Context(), Ref{Path: s.Dir}, Options{})
			if err != nil || len(l.Files) != len(s.Files) {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}
