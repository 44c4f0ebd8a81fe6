package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
)

// TestCacheLayout holds the cache to every file of the layout.
func TestCacheLayout(t *testing.T) {
	files := tinyFiles()
	_, _, commit, o := realHub(t, files)
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, s, files, tinyWanted)
	if !s.Listed || s.Gated != "" || s.Private || s.Source != "" {
		t.Errorf("%+v", s)
	}
	var want []string
	add := func(name string) { want = append(want, name) }
	for _, name := range tinyWanted {
		add("models--org--tiny/snapshots/" + commit + "/" + name)
		if strings.HasSuffix(name, ".safetensors") {
			add("models--org--tiny/blobs/" + sha256Hex(files[name]))
		} else {
			add("models--org--tiny/blobs/" + gitSHA1(files[name]))
		}
	}
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
		"preprocessor_config.json", "processor_config.json",
		"model.safetensors", "tiktoken.model", "qwen.tiktoken", "tekken.json", "vocab.json", "merges.txt", "vocab.txt"} {
		add("models--org--tiny/.no_exist/" + commit + "/" + name)
	}
	add("models--org--tiny/refs/main")
	add("models--org--tiny/.llmexport/" + commit + ".json")
	add("CACHEDIR.TAG")
	got := map[string]bool{}
	for _, name := range tree(t, o.CacheDir) {
		got[name] = true
	}
	all := map[string]bool{}
	for _, name := range want {
		all[name] = true
	}
	if d := cmp.Diff(all, got); d != "" {
		t.Error(d)
	}
	if runtime.GOOS != "windows" {
		st, err := os.Stat(filepath.Join(o.CacheDir, ".locks", "models--org--tiny", sha256Hex(files[shard1])+".lock"))
		if err != nil || st.Mode().Perm() != 0o664 {
			t.Errorf("lock: %v, %v", st, err)
		}
	}
}

// TestCacheRepaired finds what another program has damaged, and brings it in order.
func TestCacheRepaired(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	files := tinyFiles()
	_, _, commit, o := realHub(t, files)
	ref := Ref{Repo: testRepo, Revision: commit}
	if _, err := Resolve(t.Context(), ref, o); err != nil {
		t.Fatal(err)
	}
	c := newCache(o, testRepo)
	big, config := c.blob(sha256Hex(files[shard1])), c.blob(gitSHA1(files["config.json"]))
	in := func(name string) string { return filepath.Join(c.snapshotDir(commit), name) }
	for _, x := range []struct {
		name   string
		damage func() error
	}{
		{"blob cut", func() error { return os.Truncate(big, 5) }},
		{"small blob changed", func() error { return os.WriteFile(config, bytes.Repeat([]byte("x"), len(files["config.json"])), 0o666) }},
		{"blob gone", func() error { return os.Remove(big) }},
		{"link gone", func() error { return os.Remove(in(shard1)) }},
		{"link to nowhere", func() error {
			return errors.Join(os.Remove(in("config.json")), os.Symlink("../../blobs/none", in("config.json")))
		}},
		{"link to another blob", func() error {
			other := c.blob(strings.Repeat("0", 40))
			return errors.Join(os.Remove(in("config.json")), os.WriteFile(other, bytes.Repeat([]byte("x"), len(files["config.json"])), 0o666),
				os.Symlink("../../blobs/"+strings.Repeat("0", 40), in("config.json")))
		}},
		{"blob is a link to nowhere", func() error { return errors.Join(os.Remove(big), os.Symlink("../../blobs/none", big)) }},
		{"file in place of a link, wrong", func() error {
			return errors.Join(os.Remove(in("config.json")), os.WriteFile(in("config.json"), bytes.Repeat([]byte("x"), len(files["config.json"])), 0o666))
		}},
		{"half a copy in place of a link", func() error {
			return errors.Join(os.Remove(in(shard1)), os.WriteFile(in(shard1), files[shard1][:1000], 0o666),
				os.Remove(in("tokenizer.json")), os.WriteFile(in("tokenizer.json"), nil, 0o666))
		}},
		{"file in place of a link, right", func() error {
			return errors.Join(os.Remove(in("config.json")), os.WriteFile(in("config.json"), files["config.json"], 0o666), os.Remove(config))
		}},
		{"record is none", func() error { return os.WriteFile(c.recordFile(commit), []byte("{"), 0o666) }},
		{"snapshot gone", func() error { return os.RemoveAll(c.snapshotDir(commit)) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(x.name, "link") {
				t.Skip("links need a right there")
			}
			if err := x.damage(); err != nil {
				t.Fatal(err)
			}
			s, err := Resolve(t.Context(), ref, o)
			if err != nil {
				t.Fatal(err)
			}
			checkFiles(t, s, files, tinyWanted)
			if _, err := HashFiles(t.Context(), s, ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// foreign takes away what only we leave in a cache.
func foreign(t *testing.T, c *cache, commit string) {
	t.Helper()
	for _, name := range []string{".llmexport", ".no_exist"} {
		if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// putTree leaves the list that huggingface_hub leaves.
func putTree(t *testing.T, c *cache, commit string, files map[string][]byte) {
	t.Helper()
	list := map[string]any{}
	for name, b := range files {
		e := map[string]any{"size": len(b), "blob_id": gitSHA1(b)}
		if strings.HasSuffix(name, ".safetensors") {
			e["lfs_sha256"], e["lfs_size"], e["blob_id"] = sha256Hex(b), len(b), strings.Repeat("1", 40)
		}
		list[name] = e
	}
	b, err := json.Marshal(map[string]any{"format_version": 1, "files": list})
	if err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(c.dir, "trees", commit+".json"), b); err != nil {
		t.Fatal(err)
	}
}

// TestCacheOfOthers uses what another program has fetched, without asking for a list where it left one: only who may read
// the repository is asked for.
func TestCacheOfOthers(t *testing.T) {
	files := tinyFiles()
	h, s, commit, o := realHub(t, files)
	if _, err := Resolve(t.Context(), mainRef, o); err != nil {
		t.Fatal(err)
	}
	c := newCache(o, testRepo)
	pinned := Ref{Repo: testRepo, Revision: commit}
	resolve := func(offline bool, ref Ref) (*Snapshot, error) {
		foreign(t, c, commit)
		h.ResetStats()
		o := o
		o.Offline = offline
		return Resolve(t.Context(), ref, o)
	}
	asked := func() int { return len(h.Stats().Requests) }
	accessOnly := func() bool {
		list := h.Requests("GET", "/api/*")
		return len(list) == 1 && list[0].Path == "/api/models/"+testRepo
	}

	putTree(t, c, commit, files)
	for _, offline := range []bool{false, true} {
		got, err := resolve(offline, pinned)
		if err != nil || got.Listed == offline || offline && asked() != 0 || !offline && (asked() != 1 || !accessOnly()) {
			t.Fatalf("offline %t: %+v, %v, %d requests", offline, got, err, asked())
		}
		checkFiles(t, got, files, tinyWanted)
		for _, f := range got.Files {
			if strings.HasSuffix(f.Name, ".safetensors") && f.SHA256 != sha256Hex(files[f.Name]) {
				t.Errorf("%s: digest %q", f.Name, f.SHA256)
			}
		}
	}
	if got, err := resolve(true, mainRef); err != nil || got.Revision != commit {
		t.Errorf("%+v, %v", got, err)
	}

	// It had not fetched everything: what is missing is fetched, without a list.
	if err := os.Remove(filepath.Join(c.snapshotDir(commit), "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := resolve(true, pinned); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "tokenizer.json is missing") {
		t.Errorf("%v", err)
	}
	if got, err := resolve(false, pinned); err != nil || !accessOnly() {
		t.Errorf("%v, %v", err, h.Requests("GET", "/api/*"))
	} else {
		checkFiles(t, got, files, tinyWanted)
	}

	// A list that is none is passed over.
	for _, text := range []string{"{", `{"format_version":2,"files":{}}`, `{"format_version":1,"files":{"../config.json":{"size":1,"blob_id":"x"}}}`} {
		if err := replaceFile(filepath.Join(c.dir, "trees", commit+".json"), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := resolve(false, pinned); err != nil || !got.Listed {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	s.Close()
	if got, err := resolve(false, pinned); err != nil || got.Revision != commit {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAbsent holds that a note about a file that does not exist is read.
func TestAbsent(t *testing.T) {
	o := Options{CacheDir: t.TempDir(), Offline: true}
	c := newCache(o, testRepo)
	ref := Ref{Repo: testRepo, Revision: testCommit}
	put := func(path string) {
		t.Helper()
		if err := replaceFile(path, nil); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(c.snapshotDir(testCommit), "config.json"))
	if _, err := Resolve(t.Context(), ref, o); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	put(c.absentFile(testCommit, singleFile))
	if _, err := Resolve(t.Context(), ref, o); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	put(c.absentFile(testCommit, indexFile))
	if _, err := Resolve(t.Context(), ref, o); !errors.Is(err, fault.ErrUnsupported) || !strings.Contains(err.Error(), "holds no model.safetensors") {
		t.Error(err)
	}
}

// TestNoLinks covers systems without symbolic links, and users who do not want them.
func TestNoLinks(t *testing.T) {
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	o.NoLinks = true
	for range 2 {
		s, err := Resolve(t.Context(), Ref{Repo: testRepo, Revision: commit}, o)
		if err != nil {
			t.Fatal(err)
		}
		checkFiles(t, s, files, tinyWanted)
		for _, name := range tinyWanted {
			if st, err := os.Lstat(filepath.Join(s.Dir, name)); err != nil || !st.Mode().IsRegular() {
				t.Errorf("%s: %v, %v", name, st, err)
			}
		}
	}
	if n := h.Stats().Files[testRepo+"/"+shard1].Requests; n == 0 {
		t.Error("nothing was counted")
	}
}

// TestSpace refuses a download that the disk cannot hold before it begins.
func TestSpace(t *testing.T) {
	c, err := newClient(Options{}, testRepo)
	if err != nil {
		t.Fatal(err)
	}
	ca := newCache(Options{CacheDir: t.TempDir()}, testRepo)
	f := func(name string, size int64) remote {
		return remote{File: File{Name: name, Size: size, SHA256: sha256Hex([]byte(name))}, Blob: sha256Hex([]byte(name))}
	}
	err = c.fetch(t.Context(), ca, testCommit, []remote{f("a.safetensors", 1<<60), f("b.safetensors", 1<<60)})
	full := (*disk.FullError)(nil)
	if !errors.As(err, &full) || full.Need != 2<<60 || full.Free <= 0 {
		t.Errorf("%v", err)
	}
	if got := tree(t, ca.root); len(got) != 0 {
		t.Errorf("left %v", got)
	}
	if err := c.fetch(t.Context(), ca, testCommit, []remote{f("a.safetensors", 1<<62), f("b.safetensors", 1<<62)}); !errors.Is(err, fault.ErrCorrupt) {
		t.Error(err)
	}
	// What is there counts.
	one := f("c.safetensors", 1<<62)
	if err := replaceFile(ca.blob(one.Blob)+partName, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(ca.blob(one.Blob)+partName, 1<<40); err == nil {
		if err := c.fetch(t.Context(), ca, testCommit, []remote{one}); !errors.As(err, &full) || full.Need != 1<<62-1<<40 {
			t.Errorf("%v", err)
		}
	}
}

// TestLock holds that one at a time has a blob, also when the file of the lock is taken away.
func TestLock(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	c := newCache(Options{CacheDir: t.TempDir()}, testRepo)
	var (
		wg         sync.WaitGroup
		mu         sync.Mutex
		in, worst  int
		everything = 0
	)
	for i := range 8 {
		wg.Go(func() {
			release, err := c.hold(t.Context(), "blob")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			in++
			everything++
			worst = max(worst, in)
			mu.Unlock()
			if i%2 == 0 && runtime.GOOS != "windows" {
				time.Sleep(time.Millisecond)
			}
			mu.Lock()
			in--
			mu.Unlock()
			release()
		})
	}
	wg.Wait()
	if worst != 1 || everything != 8 {
		t.Errorf("%d at once, %d in all", worst, everything)
	}
	release, err := c.hold(t.Context(), "blob")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.hold(ctx, "blob"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	release()
}

// TestSharedBlobs has a blob lie in the store that huggingface_hub shares between repositories.
func TestSharedBlobs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	files := tinyFiles()
	h, _, commit, o := realHub(t, files)
	ref := Ref{Repo: testRepo, Revision: commit}
	if _, err := Resolve(t.Context(), ref, o); err != nil {
		t.Fatal(err)
	}
	blob := newCache(o, testRepo).blob(sha256Hex(files[shard1]))
	store := filepath.Join(o.CacheDir, "blobs", "ab", "ab"+strings.Repeat("0", 62))
	if err := errors.Join(os.MkdirAll(filepath.Dir(store), 0o777), os.Rename(blob, store), os.Chmod(store, 0o444),
		os.Symlink("../../blobs/ab/"+filepath.Base(store), blob)); err != nil {
		t.Fatal(err)
	}
	h.ResetStats()
	s, err := Resolve(t.Context(), ref, o)
	if err != nil || len(h.Stats().Requests) != 0 {
		t.Fatalf("%v, %d requests", err, len(h.Stats().Requests))
	}
	checkFiles(t, s, files, tinyWanted)

	// What is wrong there is not ours to write: the repository gets a blob of its own.
	if err := errors.Join(os.Chmod(store, 0o666), os.Truncate(store, 3)); err != nil {
		t.Fatal(err)
	}
	if s, err = Resolve(t.Context(), ref, o); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, s, files, tinyWanted)
	if st, err := os.Lstat(blob); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%v, %v", st, err)
	}
	if st, err := os.Stat(store); err != nil || st.Size() != 3 {
		t.Errorf("the store was written to: %v, %v", st, err)
	}
}

// TestXetHeaders has the hub say, as it does of files in Xet storage, how else they could be had.
func TestXetHeaders(t *testing.T) {
	h, _, commit, o := realHub(t, tinyFiles())
	o.Endpoint = through(t, h, func(w http.ResponseWriter, r *http.Request, storage bool) bool {
		w.Header().Set("X-Xet-Hash", strings.Repeat("e", 64))
		w.Header().Set("X-Xet-Refresh-Route", "/api/models/org/tiny/xet-read-token/"+testCommit)
		w.Header().Set("Link", `<https://cas.example/v1/reconstructions/e>; rel="xet-reconstruction-info", <https://hub.example/api>; rel="xet-auth"`)
		return false
	})
	s, err := Resolve(t.Context(), mainRef, o)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s, commit)
}
