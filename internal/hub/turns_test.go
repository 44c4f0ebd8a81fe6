//go:build hub && unix

package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fakehub"
)

const turnChild = "LLMEXPORT_TURN"

// turn is a call of ours, made by a process that may be killed.
type turn struct {
	Endpoint, CacheDir, Revision string
	NoLinks, Headers, Offline    bool
}

// TestMain is also the process that TestTurns kills.
func TestMain(m *testing.M) {
	text := os.Getenv(turnChild)
	if text == "" {
		os.Exit(m.Run())
	}
	if err := takeTurn(context.Background(), []byte(text)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func takeTurn(ctx context.Context, text []byte) error {
	var c turn
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	o := Options{Endpoint: c.Endpoint, Token: testToken, CacheDir: c.CacheDir, NoLinks: c.NoLinks, Offline: c.Offline,
		Stall: 5 * time.Second, Pause: 10 * time.Millisecond}
	ref := Ref{Repo: testRepo, Revision: c.Revision}
	if c.Headers {
		_, err := Headers(ctx, ref, o)
		return err
	}
	s, err := Resolve(ctx, ref, o)
	if err == nil {
		_, err = HashFiles(ctx, s, "")
	}
	return err
}

// theirs runs operations of the Python library, one at a time.
type theirs struct {
	in  io.Writer
	out *bufio.Scanner
}

func newTheirs(t *testing.T, o Options) *theirs {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), "testdata/turns.py")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "HF_HUB_CACHE=" + o.CacheDir, "HF_ENDPOINT=" + o.Endpoint, "HF_TOKEN=" + o.Token,
		"HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_VERBOSITY=error", "ERRORS=" + filepath.Join(t.TempDir(), "errors")}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 1<<20)
	return &theirs{in, scanner}
}

// run gives nil, errKilled or what Python says.
func (p *theirs) run(op map[string]any, kill time.Duration) error {
	b, err := json.Marshal(op)
	if err != nil {
		return err
	}
	var answer struct {
		Pid, Status int
		Error       string
	}
	read := func() error {
		if !p.out.Scan() {
			return errors.Join(errors.New("python has ended"), p.out.Err())
		}
		return json.Unmarshal(p.out.Bytes(), &answer)
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	if kill > 0 {
		pid := answer.Pid
		timer := time.AfterFunc(kill, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		defer timer.Stop()
	}
	if err := read(); err != nil {
		return err
	}
	switch {
	case answer.Status < 0:
		return errKilled
	case answer.Status > 0:
		return errors.New(answer.Error)
	}
	return nil
}

var errKilled = errors.New("killed")

// runTurn is that of ours.
func runTurn(c turn, kill time.Duration) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), turnChild+"="+string(b))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	if kill > 0 {
		timer := time.AfterFunc(kill, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() < 0 {
		return errKilled
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out.String())
	}
	return nil
}

// turns is a cache in the hands of two programs, and a repository that changes.
type turns struct {
	*testing.T
	rng       *rand.Rand
	h         *fakehub.Hub
	o         Options
	py        []*theirs
	files     map[string][]byte // of the latest commit of main
	revisions []string          // branches, references and commits
	mu        sync.Mutex
	commits   map[string]map[string][]byte
	count     map[string]int
	log       []string        // of this step
	right     map[string]bool // files that were read, by inode, time and what they should be
}

// TestTurns has both programs work on one cache in turns and at the same time, and kills them at random moments, while the
// repository gets new commits, connections are cut, and files of the cache are lost. After each step every file under a name
// must be right. LLMEXPORT_TURNS is how many steps; the default is 25. LLMEXPORT_SEED makes another run of it.
func TestTurns(t *testing.T) {
	number := func(name string, n uint64) uint64 {
		if s := os.Getenv(name); s != "" {
			var err error
			if n, err = strconv.ParseUint(s, 10, 32); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	steps, seed := number("LLMEXPORT_TURNS", 25), number("LLMEXPORT_SEED", 1)
	w := &turns{T: t, rng: rand.New(rand.NewPCG(seed, 0)), commits: map[string]map[string][]byte{}, count: map[string]int{}, right: map[string]bool{}}
	w.h = fakehub.New()
	w.files = tinyFiles()
	w.commit("main", w.files)
	s := w.h.Start(t)
	w.o = Options{Endpoint: s.URL, Token: testToken, CacheDir: t.TempDir(), Stall: 5 * time.Second, Pause: 10 * time.Millisecond}
	repo := w.h.Repo(testRepo)
	first := repo.Head("main")
	repo.Branch("feature/x", first)
	repo.Ref("refs/pr/1", first)
	w.revisions = []string{"main", "main", "main", "feature/x", "refs/pr/1", first, first[:9]}
	for range 2 {
		w.py = append(w.py, newTheirs(t, w.o))
	}
	for i := range steps {
		w.log = nil
		w.step()
		w.check()
		if t.Failed() {
			t.Fatalf("step %d of seed %d: %s", i, seed, strings.Join(w.log, "; "))
		}
		if (i+1)%50 == 0 {
			t.Logf("after %d steps: %v", i+1, w.count)
		}
	}
	w.h.ClearFaults()
	for _, revision := range w.revisions {
		if err := runTurn(w.turn(revision), 0); err != nil {
			t.Errorf("at the end, %s: %v", revision, err)
		}
		if err := w.py[0].run(map[string]any{"what": "snapshot", "revision": revision}, 0); err != nil {
			t.Errorf("at the end, python, %s: %v", revision, err)
		}
		w.complete(revision)
	}
	w.check()
	for _, name := range tree(t, w.o.CacheDir) {
		if strings.HasSuffix(name, ".tmp") && !strings.Contains(name, "/.llmexport/") {
			t.Errorf("left %s", name)
		}
	}
	t.Logf("%d steps, seed %d: %v", steps, seed, w.count)
}

func (w *turns) turn(revision string) turn {
	return turn{Endpoint: w.o.Endpoint, CacheDir: w.o.CacheDir, Revision: revision}
}

// note counts what a step does.
func (w *turns) note(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[kind]++
	w.log = append(w.log, kind+" "+fmt.Sprintf(format, args...))
}

// commit adds a commit and remembers what it holds.
func (w *turns) commit(branch string, files map[string][]byte) {
	id := w.h.Repo(testRepo).Commit(branch, files)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits[id] = w.h.Repo(testRepo).Files(id)
	w.revisions = append(w.revisions, id)
	if named, recent := 7, 6; len(w.revisions) > named+recent {
		w.revisions = slices.Delete(w.revisions, named, named+1)
	}
}

// change makes a commit with some other files.
func (w *turns) change() {
	changes := map[string][]byte{}
	fill := func(n int) []byte { return bytes.Repeat([]byte(strconv.Itoa(w.rng.IntN(1e9))+"\n"), n/8) }
	for range 1 + w.rng.IntN(3) {
		switch w.rng.IntN(6) {
		case 0:
			changes["config.json"] = fmt.Appendf(nil, `{"architectures":["Tiny"],"n":%d}`, w.rng.IntN(1e9))
		case 1:
			changes["tokenizer.json"] = fill(30_000)
		case 2:
			changes[shard1] = shard(strconv.Itoa(w.rng.IntN(1e9)), 1_000_000+w.rng.IntN(12_000_000), 0)
		case 3:
			changes[shard2] = shard(strconv.Itoa(w.rng.IntN(1e9)), w.rng.IntN(100_000)+10, w.rng.IntN(200_000))
		case 4: // the same size as before, so that only the digest tells
			changes["README.md"] = fmt.Appendf(nil, "---\nlicense: mit\n---\n%09d\n", w.rng.IntN(1e9))
		case 5:
			changes["onnx/model.onnx"] = fill(2_000_000)
		}
	}
	branch := "main"
	if w.rng.IntN(4) == 0 {
		branch = "feature/x"
	}
	w.note("commit", "of %d files to %s", len(changes), branch)
	w.commit(branch, changes)
}

// trouble sets how the network is in this step, and reports whether it is bad.
func (w *turns) trouble() bool {
	w.h.ClearFaults()
	bad := w.rng.IntN(3) == 0
	if bad {
		var rule fakehub.Rule
		switch w.rng.IntN(4) {
		case 0:
			rule = fakehub.Rule{Fault: fakehub.Cut, After: w.rng.Int64N(3_000_000), Server: "storage", Times: 1 + w.rng.IntN(3)}
		case 1:
			rule = fakehub.Rule{Fault: fakehub.Reset, After: w.rng.Int64N(200_000), Server: "storage", Times: 1 + w.rng.IntN(3)}
		case 2:
			rule = fakehub.Rule{Fault: fakehub.Status, Status: 503, Times: 1 + w.rng.IntN(2)}
		case 3:
			rule = fakehub.Rule{Fault: fakehub.IgnoreRange, Server: "storage", Times: 1 + w.rng.IntN(3)}
		}
		w.note("fault", "%s after %d", rule.Fault, rule.After)
		w.h.Fault(rule)
	}
	if w.rng.IntN(4) > 0 {
		w.h.Fault(fakehub.Rule{Fault: fakehub.Slow, Rate: []int64{4 << 20, 16 << 20}[w.rng.IntN(2)], Server: "storage"})
	}
	return bad
}

// step is one operation, or several at once.
func (w *turns) step() {
	if w.rng.IntN(2) == 0 {
		w.change()
	}
	if w.rng.IntN(8) == 0 {
		w.lose()
	}
	bad := w.trouble()
	kill := func(most int) time.Duration {
		if w.rng.IntN(5) < 2 {
			return 0
		}
		return time.Duration(1+w.rng.IntN(most)) * time.Millisecond
	}
	ours := func(alone bool) func() {
		revision := w.revisions[w.rng.IntN(len(w.revisions))]
		c, k := w.turn(revision), kill(300)
		c.NoLinks, c.Headers = w.rng.IntN(6) == 0, w.rng.IntN(5) == 0
		return func() {
			err := runTurn(c, k)
			w.note("ours", "%s no links %t headers %t kill %v: %v", revision, c.NoLinks, c.Headers, k, err)
			switch {
			case errors.Is(err, errKilled):
				w.note("ours killed", "")
			case err != nil && alone:
				w.Errorf("ours, %s: %v", revision, err)
			case err == nil && alone && !c.Headers:
				w.complete(revision)
			}
		}
	}
	python := func(i int, alone bool) func() {
		op, k := w.pick(), kill(700)
		if op["copies"] == true {
			k = 0 // it copies to the name itself: what a kill leaves there is wrong, see TestCacheRepaired
		}
		return func() {
			err := w.py[i].run(op, k)
			w.note("python", "%v kill %v: %v", op, k, err)
			switch {
			case errors.Is(err, errKilled):
				w.note("python killed", "")
			case err != nil && alone && !bad && op["what"] != "local":
				w.Errorf("python, %v: %v", op, err)
			}
		}
	}
	switch n := w.rng.IntN(10); {
	case n < 4:
		ours(true)()
	case n < 7:
		python(0, true)()
	default:
		all := []func(){ours(false), python(0, false)}
		if n > 8 {
			all = append(all, ours(false), python(1, false))
		}
		var wg sync.WaitGroup
		for _, do := range all {
			wg.Go(do)
		}
		if w.rng.IntN(2) == 0 {
			w.change()
		}
		wg.Wait()
	}
}

// pick gives an operation of the Python library.
func (w *turns) pick() map[string]any {
	op := map[string]any{"revision": w.revisions[w.rng.IntN(len(w.revisions))], "copies": w.rng.IntN(6) == 0, "force": w.rng.IntN(8) == 0}
	switch n := w.rng.IntN(12); {
	case n < 4:
		op["what"] = "snapshot"
	case n < 6:
		op["what"], op["patterns"] = "snapshot", []string{"*.json", "*.safetensors"}
	case n < 9:
		op["what"], op["file"] = "file", []string{shard1, shard1, shard2, "config.json", "tokenizer.json"}[w.rng.IntN(5)]
	case n < 10:
		op["what"] = "local"
	case n < 11:
		op["what"] = "prune"
	default:
		op["what"] = "remove"
	}
	return op
}

// lose takes something out of the cache, or leaves what an older program would have.
func (w *turns) lose() {
	c := newCache(w.o, testRepo)
	names := w.tree(c.dir)
	if len(names) == 0 {
		return
	}
	name := names[w.rng.IntN(len(names))]
	path := filepath.Join(c.dir, filepath.FromSlash(name))
	w.note("lost", "%s", name)
	if w.rng.IntN(4) > 0 || !strings.HasPrefix(name, "blobs/") {
		_ = os.Remove(path)
		return
	}
	// The beginning of the blob as releases before pull request 4228 left it, or something else.
	if b, err := os.ReadFile(path); err == nil && os.Remove(path) == nil {
		b = b[:w.rng.IntN(len(b)+1)]
		if w.rng.IntN(3) == 0 {
			clear(b)
		}
		if err := os.WriteFile(path+".incomplete", b, 0o666); err != nil {
			w.Error(err)
		}
	}
}

// tree lists a directory that may not be there yet.
func (w *turns) tree(dir string) []string {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return tree(w.T, dir)
}

// check demands that everything with a name is what the name says.
func (w *turns) check() {
	w.Helper()
	c := newCache(w.o, testRepo)
	for _, name := range w.tree(c.dir) {
		path := filepath.Join(c.dir, filepath.FromSlash(name))
		kind, rest, _ := strings.Cut(name, "/")
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) { // a link to what was lost or removed
			continue
		}
		var b []byte
		if err == nil {
			sys := st.Sys().(*syscall.Stat_t)
			key := fmt.Sprint(name, sys.Ino, st.ModTime(), st.Size())
			if kind != "refs" && w.right[key] {
				continue
			}
			w.right[key] = true
			b, err = os.ReadFile(path)
		}
		if err != nil {
			w.Error(err)
			continue
		}
		base := filepath.Base(path)
		switch {
		case kind == "snapshots":
			commit, file, _ := strings.Cut(rest, "/")
			if want, ok := w.commits[commit][file]; !ok || !bytes.Equal(b, want) {
				w.Errorf("%s: %d bytes, want %d (known %t)", name, len(b), len(want), ok)
			}
		case kind == "refs":
			if w.commits[string(b)] == nil {
				w.Errorf("%s holds %.60q", name, b)
			}
		case kind == "blobs" && (isCommit(base) && gitSHA1(b) != base || digest.IsHex(base) && sha256Hex(b) != base):
			w.Errorf("%s is another content of %d bytes", name, len(b))
		}
	}
}

// complete demands all files that are wanted of a revision, which may have moved on since it was fetched.
func (w *turns) complete(revision string) {
	w.Helper()
	c := newCache(w.o, testRepo)
	commit := revision
	if !isCommit(commit) {
		b, err := os.ReadFile(c.ref(revision))
		if err != nil {
			w.Error(err)
			return
		}
		commit = string(b)
	}
	for _, name := range tinyWanted {
		if _, ok := w.commits[commit][name]; !ok {
			continue
		}
		if _, err := os.Stat(filepath.Join(c.snapshotDir(commit), filepath.FromSlash(name))); err != nil {
			w.Errorf("%s is not complete: %v", revision, err)
		}
	}
	if !slices.Contains(w.h.Repo(testRepo).History(revision), commit) {
		w.Errorf("%s is %s, which the branch never was", revision, commit)
	}
}
