package hub

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/fault"
)

// onShard has requests for the first shard's content go wrong.
func onShard(h *fakehub.Hub, rules ...fakehub.Rule) {
	for _, r := range rules {
		r.Path, r.Server = testRepo+"/"+shard1, "storage"
		h.Fault(r)
	}
}

// TestDownloadTrouble is about transfers that end well after all.
func TestDownloadTrouble(t *testing.T) {
	type rule = fakehub.Rule
	const cut = 100_000
	whole := tinyFiles()[shard1]
	from := func(n int) string { return fmt.Sprintf("bytes=%d-%d", n, len(whole)-1) }
	for _, c := range []struct {
		name  string
		part  []byte // what an earlier run left, nil for nothing
		rules []rule
		want  []string // ranges that storage is asked for
	}{
		{"cut three times", nil, []rule{{Fault: fakehub.Cut, After: cut, Times: 3}}, []string{"", from(cut), from(2 * cut), from(3 * cut)}},
		{"resumed", whole[:cut], nil, []string{from(cut)}},
		{"resumed from our own", whole[:cut], nil, []string{from(cut)}},
		{"whole already", whole, nil, nil},
		{"part is damaged", bytes.Repeat([]byte("x"), cut), nil, []string{from(cut), ""}},
		{"part is whole and damaged", bytes.Repeat([]byte("x"), len(whole)), nil, []string{""}},
		{"part is too long", append(bytes.Clone(whole), 'x'), nil, []string{""}},
		{"range ignored", whole[:cut], []rule{{Fault: fakehub.IgnoreRange}}, []string{from(cut), ""}},
		{"wrong range", whole[:cut], []rule{{Fault: fakehub.WrongRange, Times: 1}}, []string{from(cut), from(cut)}},
		{"range refused", whole[:cut], []rule{{Fault: fakehub.Status, Status: 416, Times: 1}}, []string{from(cut), from(cut)}},
		{"signature ran out", nil, []rule{{Fault: fakehub.Expired, Times: 1}}, []string{"", ""}},
		{"busy", nil, []rule{
			{Fault: fakehub.Status, Status: 429, RetryAfter: "0", Times: 1}, {Fault: fakehub.Status, Status: 503, Times: 1},
			{Fault: fakehub.Status, Status: 500, Times: 1}, {Fault: fakehub.Status, Status: 502, Times: 1},
		}, []string{"", "", "", "", ""}},
	} {
		suffix := ".incomplete" // of another program
		if strings.HasSuffix(c.name, "our own") {
			suffix = partName
		}
		t.Run(c.name, func(t *testing.T) {
			h, _, commit, o := realHub(t, tinyFiles())
			onShard(h, c.rules...)
			blob := newCache(o, testRepo).blob(sha256Hex(whole))
			if c.part != nil {
				if err := replaceFile(blob+suffix, c.part); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Resolve(t.Context(), mainRef, o)
			if err != nil {
				t.Fatal(err)
			}
			checkSnapshot(t, s, commit)
			var got []string
			for _, r := range transfers(h, shard1) {
				got = append(got, r.Range)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || len(got) != len(c.want) {
				t.Errorf("ranges %q, want %q", got, c.want)
			}
			if left, err := filepath.Glob(blob + ".*"); err != nil || len(left) > 0 {
				t.Errorf("left %q, %v", left, err)
			}
		})
	}
}

// TestDownloadRefuses is about content that must never get its name.
func TestDownloadRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	whole := tinyFiles()[shard1]
	refused := func(t *testing.T, h *fakehub.Hub, o Options, want string, tries int) {
		s, err := Resolve(t.Context(), mainRef, o)
		if err == nil || s != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), shard1) {
			t.Fatalf("got %v", err)
		}
		if tries < 5 && !errors.Is(err, fault.ErrCorrupt) {
			t.Errorf("%v is not ErrCorrupt", err)
		}
		for _, name := range tree(t, o.CacheDir) {
			if strings.Contains(name, shard1) || strings.Contains(name, sha256Hex(whole)) || strings.Contains(name, "refs/") {
				t.Errorf("left %s", name)
			}
		}
		if n := len(transfers(h, shard1)); n != tries && tries < 5 {
			t.Errorf("%d tries, want %d", n, tries)
		}
	}
	for _, c := range []struct {
		name  string
		rule  fakehub.Rule
		want  string
		tries int
	}{
		{"flipped bit", fakehub.Rule{Fault: fakehub.Flip, After: int64(len(whole) / 2)}, "digest is", 2},
		{"other content", fakehub.Rule{Fault: fakehub.Changed}, "digest is", 2},
		{"short with its length", fakehub.Rule{Fault: fakehub.Short}, "are listed", 1},
		{"long with its length", fakehub.Rule{Fault: fakehub.Long}, "are listed", 1},
		{"long without a length", fakehub.Rule{Fault: fakehub.Endless}, "more than the", 2},
		{"a page", fakehub.Rule{Fault: fakehub.Status, Status: 200}, "are listed", 1},
		{"no answer", fakehub.Rule{Fault: fakehub.Cut}, "5 tries failed", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _, _, o := realHub(t, tinyFiles())
			onShard(h, c.rule)
			refused(t, h, o, c.want, c.tries)
		})
	}
	t.Run("nothing at all, for ever", func(t *testing.T) {
		h, _, _, o := realHub(t, tinyFiles())
		tries := 0
		o.Endpoint = through(t, h, func(w http.ResponseWriter, r *http.Request, storage bool) bool {
			if !storage || filepath.Base(r.URL.Path) != shard1 {
				return false
			}
			tries++
			w.(http.Flusher).Flush()
			return true
		})
		refused(t, h, o, "5 tries failed", 5)
		if tries != 5 {
			t.Errorf("%d tries", tries)
		}
	})
	t.Run("small file", func(t *testing.T) {
		h, _, _, o := realHub(t, tinyFiles())
		h.Fault(fakehub.Rule{Fault: fakehub.Flip, After: 3, Path: testRepo + "/config.json"})
		if _, err := Resolve(t.Context(), mainRef, o); !errors.Is(err, fault.ErrCorrupt) || !strings.Contains(err.Error(), "config.json: digest") {
			t.Error(err)
		}
	})
}

func TestDownloadStalls(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	h, _, commit, o := realHub(t, tinyFiles())
	onShard(h, fakehub.Rule{Fault: fakehub.Stall, Times: 1}, fakehub.Rule{Fault: fakehub.Stall, After: 5000, Times: 1})
	o.Stall = 300 * time.Millisecond
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
	if list := transfers(h, shard1); len(list) != 3 || !strings.HasPrefix(list[2].Range, "bytes=5000-") {
		t.Errorf("the bytes before the stall were fetched again: %+v", list)
	}
}

func TestRetryAfter(t *testing.T) {
	h, _, _, o := realHub(t, tinyFiles())
	h.Fault(fakehub.Rule{Fault: fakehub.Status, Status: 429, RetryAfter: "3600"})
	if _, err := Resolve(t.Context(), mainRef, o); err == nil || !strings.Contains(err.Error(), "wait 1h") {
		t.Error(err)
	}
	if n := len(h.Stats().Requests); n != 1 {
		t.Errorf("%d tries", n)
	}
}

// TestTwoProcesses lets two downloads meet in one cache; locks belong to open files, so two clients in
// one process stand for two processes.
func TestTwoProcesses(t *testing.T) {
	h, _, _, o := realHub(t, tinyFiles())
	errs := make(chan error)
	for range 2 {
		go func() {
			_, err := Resolve(t.Context(), mainRef, o)
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := len(transfers(h, shard1)); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// TestWithoutLinks is Windows without the right to make symbolic links.
func TestWithoutLinks(t *testing.T) {
	defer func() { symlink = (*os.Root).Symlink }()
	symlink = func(*os.Root, string, string) error { return errors.New("not allowed") }
	_, _, commit, o := realHub(t, tinyFiles())
	for range 2 {
		s, err := Resolve(t.Context(), mainRef, o)
		if err != nil {
			t.Fatal(err)
		}
		checkSnapshot(t, s, commit)
		if st, err := os.Lstat(filepath.Join(s.Dir, shard1)); err != nil || !st.Mode().IsRegular() {
			t.Error(err)
		}
	}
}
