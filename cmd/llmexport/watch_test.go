package main

import (
	"bufio"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/rogpeppe/go-internal/testscript"
)

// cmdHub is "hub DIR LOG": serves the repositories of DIR as a Hugging Face hub, whose address HF_ENDPOINT is from then on,
// and writes a line into LOG for each answer: status, path and query.
//
//	DIR/org/name/main         the commit behind the branch
//	DIR/org/name/<commit>/    its files
//	DIR/org/name/files/       those of the commits that have none of their own
//	DIR/org/name/refuse       if there, the status and the error code of every answer
func cmdHub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hub DIR LOG")
	}
	log, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	var mu sync.Mutex
	h := folderHub(ts.MkAbs(args[0]))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := h.serve(w, r)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(log, status, r.URL.RequestURI())
	}))
	ts.Setenv("HF_ENDPOINT", srv.URL)
	ts.Setenv("HF_HUB_OFFLINE", "")
	ts.Defer(func() {
		srv.Close()
		log.Close()
	})
}

// folderHub is the directory of the repositories of a hub.
type folderHub string

func (h folderHub) serve(w http.ResponseWriter, r *http.Request) int {
	refuse := func(status int, code string) int {
		w.Header().Set("X-Error-Code", code)
		w.WriteHeader(status)
		return status
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/models")
	parts := strings.SplitN(strings.Trim(path, "/"), "/", 5)
	if len(parts) < 4 {
		return refuse(404, "EntryNotFound")
	}
	repo, verb, revision := filepath.Join(string(h), parts[0], parts[1]), parts[2], parts[3]
	if b, err := os.ReadFile(filepath.Join(repo, "refuse")); err == nil {
		status, code, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
		n, _ := strconv.Atoi(status)
		return refuse(n, code)
	}
	b, err := os.ReadFile(filepath.Join(repo, "main"))
	if err != nil {
		return refuse(404, "RepoNotFound")
	}
	commit := strings.TrimSpace(string(b))
	if revision != "main" {
		commit = revision
	}
	files := filepath.Join(repo, commit)
	if _, err := os.Stat(files); err != nil {
		files = filepath.Join(repo, "files")
	}
	if verb == "resolve" && len(parts) == 5 {
		http.ServeFile(w, r, filepath.Join(files, filepath.FromSlash(parts[4])))
		return 200
	}
	answer := map[string]any{"id": parts[0] + "/" + parts[1], "sha": commit}
	if r.URL.Query().Get("blobs") != "" {
		if answer["siblings"], err = siblings(os.DirFS(files)); err != nil {
			return refuse(404, "RevisionNotFound")
		}
	}
	body, _ := json.Marshal(answer)
	etag := fmt.Sprintf(`W/"%x-%x"`, len(body), sha1.Sum(body))
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(304)
		return 304
	}
	_, _ = w.Write(body)
	return 200
}

// siblings lists files as the hub does; weights are large files.
func siblings(dir fs.FS) ([]any, error) {
	var list []any
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		blob := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
		s := map[string]any{"rfilename": name, "size": len(b), "blobId": hex.EncodeToString(blob[:])}
		if strings.HasSuffix(name, ".safetensors") {
			sum := sha256.Sum256(b)
			s["lfs"] = map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(b), "pointerSize": 130}
		}
		list = append(list, s)
		return nil
	})
	return list, err
}

// cmdCrash is "crash TEXT FILE command args...": kills the command once it has written TEXT, and leaves what it wrote before
// in FILE.
func cmdCrash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: crash TEXT FILE command args...")
	}
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environment(ts)
	r, w, err := os.Pipe()
	ts.Check(err)
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	ts.Check(cmd.Start())
	w.Close()
	late := time.AfterFunc(interruptPatience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var text strings.Builder
	lines, found := bufio.NewScanner(r), false
	for !found && lines.Scan() {
		fmt.Fprintln(&text, lines.Text())
		found = strings.Contains(lines.Text(), args[0])
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, r)
	_ = cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text.String()), 0o666))
	if !found {
		ts.Fatalf("it did not write %q\n%s", args[0], text.String())
	}
}

// cmdHold is "hold FILE": keeps a lock on the file until the script ends.
func cmdHold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold FILE")
	}
	l := flock.New(ts.MkAbs(args[0]))
	if ok, err := l.TryLock(); err != nil || !ok {
		ts.Fatalf("%s: locked %v, %v", args[0], ok, err)
	}
	ts.Defer(func() { _ = l.Unlock() })
}
