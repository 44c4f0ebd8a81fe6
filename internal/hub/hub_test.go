package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/fakehub"
)

const shard1 = "model-00001-of-00002.safetensors"

var mainRef = Ref{Repo: testRepo}

// tree lists the files below dir that are no locks and no downloads on their way.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(p, ".lock") && !strings.HasSuffix(p, partName) {
			rel, _ := filepath.Rel(dir, p)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestResolveDownloads(t *testing.T) {
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	h.Repo(testRepo).SetPrivate(true) // so that every request needs the token
	last := map[string]int64{}
	o.Progress = func(file string, done, total int64) {
		if done < last[file] || done > total || total != int64(len(files[file])) {
			t.Errorf("%s: %d after %d of %d", file, done, last[file], total)
		}
		last[file] = done
	}
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
	for _, name := range tinyWanted {
		if last[name] != int64(len(files[name])) {
			t.Errorf("%s: progress ended at %d", name, last[name])
		}
	}
	for name := range files {
		if n := len(h.Requests("*", testRepo+"/"+name)); n > 0 && !slices.Contains(tinyWanted, name) {
			t.Errorf("asked %d times for %s", n, name)
		}
	}

	// The layout is the one of huggingface_hub.
	repo := filepath.Join(o.CacheDir, "models--org--tiny")
	if b, err := os.ReadFile(filepath.Join(repo, "refs", "main")); string(b) != commit {
		t.Errorf("refs/main is %q, %v", b, err)
	}
	for name, blob := range map[string]string{"config.json": gitSHA1(files["config.json"]), shard1: sha256Hex(files[shard1])} {
		if _, err := os.Stat(filepath.Join(repo, "blobs", blob)); err != nil {
			t.Error(err)
		}
		link, err := os.Readlink(filepath.Join(s.Dir, name))
		if want := filepath.Join("..", "..", "blobs", blob); err == nil && link != want {
			t.Errorf("%s -> %s, want %s", name, link, want)
		}
	}

	// A branch is looked up again, a commit is not; neither downloads again.
	h.ResetStats()
	for _, c := range []struct {
		ref      Ref
		offline  bool
		requests int
	}{
		{mainRef, false, 1},
		{Ref{Repo: testRepo, Revision: commit}, false, 0},
		{Ref{Repo: testRepo, Revision: commit}, true, 0},
		{mainRef, true, 0},
	} {
		o.Offline = c.offline
		s, err := Resolve(t.Context(), c.ref, o)
		if err != nil {
			t.Fatal(err)
		}
		checkSnapshot(t, s, commit)
		if n := len(h.Stats().Requests); n != c.requests {
			t.Errorf("%v, offline %t: %d requests, want %d", c.ref, c.offline, n, c.requests)
		}
		h.ResetStats()
	}
}

func TestResolveRefs(t *testing.T) {
	h, _, commit, o := realHub(t, tinyFiles())
	h.Repo(testRepo).Ref("refs/pr/1", commit)
	s, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: "refs/pr/1"}, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
	b, err := os.ReadFile(filepath.Join(o.CacheDir, "models--org--tiny", "refs", "refs", "pr", "1"))
	if string(b) != commit {
		t.Errorf("%q, %v", b, err)
	}
}

// TestResolveFallsBack uses the cache when the hub cannot be reached.
func TestResolveFallsBack(t *testing.T) {
	_, server, commit, o := realHub(t, tinyFiles())
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	server.Close()
	// Another program may listen on the port now.
	o.Client = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}}}
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
	o.CacheDir = t.TempDir()
	if _, err := Resolve(t.Context(), mainRef, o); !errors.As(err, new(*UnreachableError)) ||
		!strings.HasSuffix(err.Error(), "cannot reach the hub (connection refused), and the revision is missing from the cache "+o.CacheDir) {
		t.Error(err)
	}
}

// TestUnreachable counts what a machine without a network tries: nothing is waited for where the cache has an answer, nor
// for a name that does not exist.
func TestUnreachable(t *testing.T) {
	_, _, commit, full := realHub(t, tinyFiles())
	if _, err := Resolve(t.Context(), mainRef, full); err != nil {
		t.Fatal(err)
	}
	c := newCache(full, testRepo)
	foreign(t, c, commit) // who may read it is asked for then
	putTree(t, c, commit, tinyFiles())
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	absent := dial(&net.DNSError{Err: "no such host", Name: "hub.invalid", IsNotFound: true})
	busy := dial(&net.DNSError{Err: "server misbehaving", Name: "hub.invalid", IsTemporary: true})
	refused := dial(syscall.ECONNREFUSED)
	pinned := Ref{Repo: testRepo, Revision: commit}
	for _, c := range []struct {
		name    string
		ref     Ref
		err     error // nil for a network that swallows everything
		mirrors int
		cached  bool
		want    int32
	}{
		{"name absent, cached", mainRef, absent, 0, true, 1},
		{"name server ill, cached", mainRef, busy, 0, true, 1},
		{"refused, cached", mainRef, refused, 0, true, 1},
		{"silent, cached", mainRef, nil, 0, true, 1},
		{"with mirrors, cached", mainRef, refused, 2, true, 3},
		{"commit, cached", pinned, refused, 0, true, 1},
		{"commit, cached, with mirrors", pinned, refused, 2, true, 1},
		{"name absent", mainRef, absent, 0, false, 1},
		{"name server ill", mainRef, busy, 0, false, 5},
		{"refused", mainRef, refused, 0, false, 5},
		{"names absent, with mirrors", mainRef, absent, 2, false, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := full
			if !c.cached {
				o.CacheDir = t.TempDir()
			}
			o.Endpoint, o.Ask, o.Pause = "http://hub.invalid", 50*time.Millisecond, time.Nanosecond
			for range c.mirrors {
				o.Mirrors = append(o.Mirrors, "http://mirror.invalid")
			}
			var dials atomic.Int32
			o.Client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials.Add(1)
				if c.err == nil {
					<-ctx.Done()
					return nil, dial(ctx.Err())
				}
				return nil, c.err
			}}}
			s, err := Resolve(t.Context(), c.ref, o)
			if got := dials.Load(); got != c.want {
				t.Errorf("%d tries, want %d", got, c.want)
			}
			if c.cached && (err != nil || s.Revision != commit) || !c.cached && !errors.Is(err, c.err) {
				t.Error(err)
			}
		})
	}
}

// TestResolveOfflineForeignCache reads a snapshot that has no record of ours.
func TestResolveOfflineForeignCache(t *testing.T) {
	h, _, commit, o := realHub(t, tinyFiles())
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(o.CacheDir, "models--org--tiny", ".llmexport")); err != nil {
		t.Fatal(err)
	}
	o.Offline = true
	if got, err := Resolve(t.Context(), mainRef, o); err != nil || len(got.Files) != len(s.Files) || got.Revision != commit {
		t.Errorf("%+v, %v", got, err)
	}
	for _, name := range []string{shard1, indexFile, "config.json"} {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil {
			t.Fatal(err)
		}
		want := name
		if name == indexFile {
			want = "model.safetensors"
		}
		if _, err := Resolve(t.Context(), mainRef, o); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want+" is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if _, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: "dev"}, o); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if n := len(h.Requests("*", "/api/models/*")); n != 1 {
		t.Errorf("%d list requests", n)
	}
}

// TestRecordedSnapshotIsChecked downloads a file that has gone from a complete snapshot.
func TestRecordedSnapshotIsChecked(t *testing.T) {
	h, _, commit, o := realHub(t, tinyFiles())
	ref := Ref{Repo: testRepo, Revision: commit}
	s, err := Resolve(t.Context(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(s.Dir, shard1), 10); err != nil {
		t.Fatal(err)
	}
	if s, err = Resolve(t.Context(), ref, o); err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
	if n := len(transfers(h, shard1)); n != 2 {
		t.Errorf("%d downloads", n)
	}
}

func TestResolveLocal(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors", "pytorch_model.bin"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Resolve(t.Context(), Ref{Path: dir}, Options{})
	want := &Snapshot{Dir: dir, Files: []File{{Name: "config.json", Size: 11}, {Name: "model.safetensors", Size: 17}}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Snapshot{})); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, ref := range []Ref{{Path: filepath.Join(dir, "none")}, {Path: t.TempDir()}, {Path: dir, Repo: "a/b"}, {Path: filepath.Join(dir, "config.json")}} {
		if s, err := Resolve(t.Context(), ref, Options{}); err == nil || s != nil {
			t.Errorf("%+v: %v", ref, s)
		}
	}
}

// TestTokenStaysHome also covers storage on another port of the same machine, which is the fake's.
func TestTokenStaysHome(t *testing.T) {
	h, _, _, o := realHub(t, tinyFiles())
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	home, away := 0, 0
	for _, r := range h.Stats().Requests {
		if r.Authorized != (r.Server == "hub") {
			t.Errorf("%+v", r)
		}
		if r.Server == "hub" {
			home++
		} else {
			away++
		}
	}
	if home == 0 || away == 0 || h.Leaked() {
		t.Errorf("%d requests to the hub, %d to storage, leaked %t", home, away, h.Leaked())
	}
	for _, s := range []string{o.String(), fmt.Sprintf("%v", o), fmt.Sprintf("%+v", o), fmt.Sprintf("%#v", o), fmt.Sprint(o)} {
		if strings.Contains(s, testToken) {
			t.Errorf("printed: %s", s)
		}
	}
}

// TestLogHasNoSecrets reads what a troubled download logs.
func TestLogHasNoSecrets(t *testing.T) {
	for _, fault := range []fakehub.Rule{
		{Fault: fakehub.Cut}, {Fault: fakehub.Reset}, {Fault: fakehub.Cut, After: 100_000}, {Fault: fakehub.Expired}, {Fault: fakehub.Status, Status: 503},
		{Fault: fakehub.Redirect, Location: "http://127.0.0.1:1{path}"}, {Fault: fakehub.RedirectLoop},
	} {
		h, _, _, o := realHub(t, tinyFiles())
		fault.Server = "storage"
		h.Fault(fault)
		var log bytes.Buffer
		ctx := zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context())
		_, err := Resolve(ctx, mainRef, o)
		if err == nil && fault.After == 0 {
			t.Fatalf("%s: no error without storage", fault.Fault)
		}
		text := log.String()
		if !strings.Contains(text, "trying again") && fault.Fault != fakehub.RedirectLoop {
			t.Errorf("%s: %s", fault.Fault, text)
		}
		if text += fmt.Sprint(err); strings.Contains(text, "Amz") || strings.Contains(text, "ignature=") || strings.Contains(text, testToken) {
			t.Errorf("%s: %s", fault.Fault, text)
		}
	}
}

func TestRedirectRefused(t *testing.T) {
	for name, rule := range map[string]fakehub.Rule{
		"loop":   {Fault: fakehub.RedirectLoop},
		"scheme": {Fault: fakehub.Redirect, Location: "ftp://x/y"},
		"file":   {Fault: fakehub.Redirect, Location: "file:///etc/passwd"},
	} {
		h, _, _, o := realHub(t, tinyFiles())
		h.Fault(rule)
		if _, err := Resolve(t.Context(), mainRef, o); err == nil || !strings.Contains(err.Error(), "redirects") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResolveCancelled(t *testing.T) {
	h, _, commit, o := realHub(t, tinyFiles())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.Fault(fakehub.Rule{Fault: fakehub.Stall, After: 1000, Server: "storage"})
	o.Progress = func(file string, done, total int64) {
		if isShard(file) {
			cancel()
		}
	}
	s, err := Resolve(ctx, mainRef, o)
	if !errors.Is(err, context.Canceled) || s != nil {
		t.Errorf("got %v", err)
	}
	for _, name := range tree(t, o.CacheDir) {
		if strings.Contains(name, "refs/") || strings.Contains(name, ".llmexport") || isShard(path.Base(name)) {
			t.Errorf("left %s", name)
		}
	}
	h.ClearFaults()
	o.Progress = nil
	if s, err = Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
}
