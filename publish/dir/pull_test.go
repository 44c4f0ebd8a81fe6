package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// fakeOrigin is a place in memory that may lie.
type fakeOrigin struct {
	data  []byte // manifest.json
	files map[string][]byte
	// open, if not nil, stands in for Range.
	open func(f manifest.File, off, n int64) (io.ReadCloser, error)
	sent atomic.Int64
	// unsure, if not nil, is the error of a signature that is not there.
	unsure error
}

// origin makes a place of a package.
func newOrigin(t testing.TB, p place.Package) *fakeOrigin {
	t.Helper()
	data, err := p.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	o := &fakeOrigin{data: data, files: map[string][]byte{}}
	for _, f := range p.Manifest.Files {
		b, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(f.Name)))
		if err != nil {
			t.Fatal(err)
		}
		o.files[f.Name] = b
	}
	return o
}

func (o *fakeOrigin) String() string { return "fake://state" }
func (o *fakeOrigin) Read(_ context.Context, name string, _ int64) ([]byte, error) {
	if name == manifest.FileName {
		return o.data, nil
	}
	if b, ok := o.files[name]; ok {
		return b, nil
	}
	if o.unsure != nil {
		return nil, o.unsure
	}
	return nil, fs.ErrNotExist
}
func (o *fakeOrigin) Range(f manifest.File) transfer.Range {
	return func(_ context.Context, off, n int64) (io.ReadCloser, error) {
		if o.open != nil {
			return o.open(f, off, n)
		}
		o.sent.Add(n)
		return io.NopCloser(bytes.NewReader(o.files[f.Name][off : off+n])), nil
	}
}

func mustPull(t testing.TB, from place.Origin, dir string, o PullOptions) Pulled {
	t.Helper()
	o.Transfer = placetest.Quick
	_, done, err := Pull(t.Context(), from, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// at is the package in a directory.
func at(t testing.TB, dir string) place.Origin {
	t.Helper()
	from, err := Open(t.Context(), dir, place.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return from
}

func TestPull(t *testing.T) {
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	from := newOrigin(t, one)
	target := filepath.Join(t.TempDir(), "a", "out")
	var seen sync.Map
	done := mustPull(t, from, target, PullOptions{Progress: func(file string, n, total int64) {
		if n == total {
			seen.Store(file, n)
		}
	}})
	placetest.Want(t, target, one)
	m, err := manifest.Parse(from.data)
	if err != nil {
		t.Fatal(err)
	}
	size := m.Bytes() + int64(len(from.data))
	want := Pulled{Status: place.Published, From: "fake://state", Dir: target, Digest: m.Digest, Files: 5, Bytes: size, Fetched: size}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, f := range m.Files {
		if _, ok := seen.Load(f.Name); !ok {
			t.Errorf("no progress of %s", f.Name)
		}
	}

	t.Run("again", func(t *testing.T) {
		sent := from.sent.Load()
		done := mustPull(t, from, target, PullOptions{Digest: m.Digest})
		if done.Status != place.Unchanged || done.Fetched != int64(len(from.data)) || done.Reused != m.Bytes() || from.sent.Load() != sent {
			t.Errorf("%+v, %d sent", done, from.sent.Load()-sent)
		}
	})
	t.Run("from a directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "copy")
		mustPull(t, at(t, target), dir, PullOptions{})
		placetest.Want(t, dir, one)
		if done := mustPull(t, at(t, target), target, PullOptions{}); done.Status != place.Unchanged {
			t.Errorf("onto itself: %+v", done)
		}
		if _, _, err := Pull(t.Context(), at(t, target), filepath.Join(target, "x"), PullOptions{}); err == nil ||
			!strings.Contains(err.Error(), "is inside the other") {
			t.Errorf("into itself: %v", err)
		}
	})
	t.Run("another digest", func(t *testing.T) {
		_, _, err := Pull(t.Context(), from, target, PullOptions{Digest: digest.Of(nil)})
		if !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), string(m.Digest)) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("another package", func(t *testing.T) {
		_, _, err := Pull(t.Context(), newOrigin(t, two), target, PullOptions{})
		if err == nil || !strings.Contains(err.Error(), "contains another package") {
			t.Errorf("got %v", err)
		}
		placetest.Want(t, target, one)
	})
	t.Run("working directory", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if _, _, err := Pull(t.Context(), from, ".", PullOptions{}); err == nil || !strings.Contains(err.Error(), "is the working directory") {
			t.Errorf("empty: %v", err)
		}
		t.Chdir(target)
		if _, _, err := Pull(t.Context(), newOrigin(t, two), target, PullOptions{Replace: true}); err == nil ||
			!strings.Contains(err.Error(), "is the working directory") {
			t.Errorf("another package: %v", err)
		}
		if done := mustPull(t, from, ".", PullOptions{}); done.Status != place.Unchanged {
			t.Errorf("%+v", done)
		}
	})
	t.Run("default directory", func(t *testing.T) {
		t.Chdir(t.TempDir())
		mustPull(t, from, "", PullOptions{})
		placetest.Want(t, "tiny", one)
		mustPull(t, from, "models/{name}-4bit", PullOptions{})
		placetest.Want(t, "models/tiny-4bit", one)
		for _, name := range []string{"~", "-rf", "a b", "{name}"} {
			p := placetest.Package(t, "one")
			p.Manifest.Name = name
			if _, _, err := Pull(t.Context(), newOrigin(t, p), "", PullOptions{}); err == nil || !strings.Contains(err.Error(), "give the directory") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Lstat(name); err == nil {
				t.Errorf("%s is there", name)
			}
		}
	})
}

// Only what is missing travels.
func TestPullReuses(t *testing.T) {
	one := placetest.Package(t, "one")
	two := placetest.Package(t, "one")
	placetest.Write(t, filepath.Join(two.Dir, "config.json"), "changed")
	placetest.Write(t, filepath.Join(two.Dir, "copy.bin"), "llm.mnn.weight one") // the content of another file
	two.Manifest.Files = nil
	for _, name := range []string{"config.json", "copy.bin", "llm.mnn", "llm.mnn.weight", "sub/empty.bin"} {
		f, err := manifest.HashFile(t.Context(), filepath.Join(two.Dir, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		f.Name = name
		two.Manifest.Files = append(two.Manifest.Files, f)
	}
	from := newOrigin(t, two)
	target := filepath.Join(t.TempDir(), "out")
	placetest.Publish(t, Place{Path: target}, one)
	done := mustPull(t, from, target, PullOptions{Replace: true})
	placetest.Want(t, target, two)
	if done.Status != place.Replaced || from.sent.Load() != int64(len("changed")) || done.Fetched != from.sent.Load()+int64(len(from.data)) ||
		done.Fetched+done.Reused != done.Bytes {
		t.Errorf("%+v, %d sent", done, from.sent.Load())
	}

	t.Run("damaged", func(t *testing.T) {
		placetest.Write(t, filepath.Join(target, "llm.mnn"), "llm.mnn onf")
		if _, _, err := Pull(t.Context(), from, target, PullOptions{}); err == nil || !strings.Contains(err.Error(), "package, damaged") {
			t.Errorf("got %v", err)
		}
		from.sent.Store(0)
		mustPull(t, from, target, PullOptions{Replace: true})
		placetest.Want(t, target, two)
		if from.sent.Load() != int64(len("llm.mnn one")) {
			t.Errorf("%d bytes sent", from.sent.Load())
		}
	})
	t.Run("with notes", func(t *testing.T) {
		placetest.Write(t, filepath.Join(target, "notes"), "mine")
		_, _, err := Pull(t.Context(), newOrigin(t, one), target, PullOptions{Replace: true})
		if err == nil || !strings.Contains(err.Error(), `"notes" first`) || placetest.Tree(t, target)["notes"] != "mine" {
			t.Errorf("got %v", err)
		}
	})
}

// endless gives bytes for ever.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
func (endless) Close() error               { return nil }

func TestPullRefuses(t *testing.T) {
	p := placetest.Package(t, "one")
	good := string(newOrigin(t, p).data)
	// lie changes the manifest and gives it a right digest again.
	lie := func(old, new string) func(o *fakeOrigin) {
		return func(o *fakeOrigin) {
			m, _ := manifest.Parse(o.data)
			text := strings.Replace(good, string(m.Digest), "", 1)
			changed := strings.Replace(text, old, new, 1)
			if changed == text {
				panic(old + " is not in the manifest")
			}
			digest := digest.Of([]byte(changed))
			o.data = []byte(strings.Replace(changed, `"digest": ""`, `"digest": "`+string(digest)+`"`, 1))
			for name, b := range o.files {
				if name == old {
					o.files[new] = b
				}
			}
		}
	}
	name := func(s string) func(o *fakeOrigin) { return lie(`"name": "sub/empty.bin"`, `"name": "`+s+`"`) }
	tests := map[string]struct {
		change func(o *fakeOrigin)
		want   string
	}{
		"no manifest":        {func(o *fakeOrigin) { o.data = nil }, "manifest.json: "},
		"huge manifest":      {func(o *fakeOrigin) { o.data = make([]byte, manifest.MaxSize+1) }, "more than"},
		"flipped manifest":   {func(o *fakeOrigin) { o.data = bytes.Replace(o.data, []byte("cpu"), []byte("cpv"), 1) }, "has digest"},
		"parent":             {name("../x"), "plain relative path"},
		"absolute":           {name("/etc/x"), "plain relative path"},
		"drive":              {name("sub/c:x"), "some systems do not allow"},
		"backslash":          {name(`sub\\x`), "some systems do not allow"},
		"NUL":                {name(`sub/\u0000`), "some systems do not allow"},
		"device":             {name("sub/CON.txt"), "device on Windows"},
		"device NUL":         {name("sub/NUL"), "device on Windows"},
		"other case":         {name("llm.mnn.WEIGHT"), "are one file where names have no case"},
		"manifest":           {name("Manifest.json"), "lists"},
		"below a file":       {name("llm.mnn.weight/x"), "is a file and the directory of"},
		"package name":       {lie(`"name": "tiny"`, `"name": "../tiny"`), "not a plain file name"},
		"more than there":    {lie(`"size": 18`, `"size": 19`), "digest is"},
		"less than there":    {lie(`"size": 18`, `"size": 17`), ""},
		"too large":          {lie(`"size": 18`, `"size": 9000000000000000000`), "TB are needed"},
		"negative":           {lie(`"size": 18`, `"size": -1`), "size -1"},
		"overflow":           {lie(`"size": 18`, `"size": 9223372036854775807`), ""},
		"another digest":     {lie(p.Manifest.Files[0].SHA256, strings.Repeat("0", 64)), "digest is"},
		"different sizes":    {lie(p.Manifest.Files[0].SHA256, p.Manifest.Files[1].SHA256), "different sizes"},
		"changed in between": {func(o *fakeOrigin) { o.files["llm.mnn"][0] ^= 1 }, "digest is"},
		"too little": {func(o *fakeOrigin) {
			o.open = func(f manifest.File, off, n int64) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(o.files[f.Name][off : off+(n+1)/2])), nil
			}
		}, ""},
		"nothing": {func(o *fakeOrigin) {
			o.open = func(manifest.File, int64, int64) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(nil)), nil
			}
		}, "tries failed"},
		"endless": {func(o *fakeOrigin) {
			o.open = func(manifest.File, int64, int64) (io.ReadCloser, error) { return endless{}, nil }
		}, "more than"},
		"error": {func(o *fakeOrigin) {
			o.open = func(manifest.File, int64, int64) (io.ReadCloser, error) { return nil, fs.ErrPermission }
		}, "permission"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, p)
			for f, b := range o.files {
				o.files[f] = append(b[:len(b):len(b)], make([]byte, 2)...)[:len(b)]
			}
			tc.change(o)
			if name == "more than there" {
				o.files["llm.mnn.weight"] = append(o.files["llm.mnn.weight"], 0)
			}
			base := t.TempDir()
			target := filepath.Join(base, "out")
			_, _, err := Pull(t.Context(), o, target, PullOptions{Transfer: placetest.Quick})
			if name == "too little" {
				// Half of the rest each time gets there.
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			got := placetest.Tree(t, base)
			maps.DeleteFunc(got, func(k, _ string) bool { return strings.HasPrefix(k, "out.pull-") })
			if len(got) > 0 {
				t.Errorf("the disk changed: %v", got)
			}
			// What was begun is in nobody's way.
			mustPull(t, newOrigin(t, p), target, PullOptions{})
			placetest.Want(t, target, p)
		})
	}
}

// Links in the directory next to the target lead nowhere.
func TestPullLinks(t *testing.T) {
	p := placetest.Package(t, "one")
	m, err := manifest.Parse(newOrigin(t, p).data)
	if err != nil {
		t.Fatal(err)
	}
	part := m.Files[1].SHA256
	for name, tc := range map[string]struct {
		at   string // below the staging directory
		want string // empty when the pull gets over it
	}{
		"all":       {"", "is not a directory"},
		"package":   {"package", "is not a directory"},
		"parts":     {"parts", "is not a directory"},
		"directory": {"package/sub", ""},
		"file":      {"package/llm.mnn", ""},
		"part":      {"parts/" + part, "is not a regular file"},
		"manifest":  {"package/manifest.json", ""},
		"more":      {"package/more", "is not part of the package"},
	} {
		t.Run(name, func(t *testing.T) {
			base, outside := t.TempDir(), t.TempDir()
			target := filepath.Join(base, "out")
			placetest.Write(t, filepath.Join(outside, "x"), "mine")
			work := target + ".pull-" + m.Digest.Hex()[:16]
			link := filepath.Join(work, filepath.FromSlash(tc.at))
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			to := outside
			if name == "file" || name == "part" || name == "manifest" {
				to = filepath.Join(outside, "x")
			}
			if err := os.Symlink(to, link); err != nil {
				t.Skipf("symbolic links cannot be made here: %v", err)
			}
			_, _, err := Pull(t.Context(), newOrigin(t, p), target, PullOptions{Transfer: placetest.Quick})
			if err == nil {
				placetest.Want(t, target, p)
			}
			if name != "directory" && (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff(map[string]string{"x": "mine"}, placetest.Tree(t, outside)); diff != "" {
				t.Errorf("outside (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPullSpace(t *testing.T) {
	p := placetest.Package(t, "one")
	defer func(f func(string, int64) error) { checkSpace = f }(checkSpace)
	checkSpace = func(dir string, need int64) error { return &disk.FullError{Dir: dir, Need: need, Free: 100} }
	o := newOrigin(t, p)
	dir := t.TempDir()
	_, _, err := Pull(t.Context(), o, filepath.Join(dir, "out"), PullOptions{})
	if err == nil || !strings.Contains(err.Error(), "100 bytes free") || o.sent.Load() != 0 {
		t.Errorf("%v, %d bytes sent", err, o.sent.Load())
	}
	if left := placetest.Tree(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A package that does not pass its check is not installed, and not fetched again.
func TestPullCheck(t *testing.T) {
	p := placetest.Package(t, "one")
	o := newOrigin(t, p)
	target := filepath.Join(t.TempDir(), "out")
	bad := errors.New("wrong answers")
	_, _, err := Pull(t.Context(), o, target, PullOptions{Check: func(ctx context.Context, dir string) error {
		if _, err := place.OpenVerified(ctx, dir); err != nil {
			t.Error(err)
		}
		return bad
	}})
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("installed: %v", err)
	}
	sent := o.sent.Load()
	if done := mustPull(t, o, target, PullOptions{}); o.sent.Load() != sent || done.Reused != p.Manifest.Bytes() {
		t.Errorf("%+v, %d bytes sent again", done, o.sent.Load()-sent)
	}
	placetest.Want(t, target, p)
}

// What an unfinished pull of another package left is removed.
func TestPullLeftover(t *testing.T) {
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	target := filepath.Join(t.TempDir(), "out")
	broken := newOrigin(t, one)
	broken.open = func(manifest.File, int64, int64) (io.ReadCloser, error) { return nil, fs.ErrPermission }
	if _, _, err := Pull(t.Context(), broken, target, PullOptions{}); err == nil {
		t.Fatal("no error")
	}
	left, _ := filepath.Glob(target + ".pull-*")
	if len(left) != 1 {
		t.Fatalf("left %v", left)
	}
	other := target + ".pull-mine"
	placetest.Write(t, filepath.Join(other, "x"), "mine")
	mustPull(t, newOrigin(t, two), target, PullOptions{})
	if left, _ = filepath.Glob(target + ".pull-*"); !slices.Equal(left, []string{other}) {
		t.Errorf("left %v", left)
	}
}

// TestPullFails lets every step on the disk fail, in turn; the next pull goes on.
func TestPullFails(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	one, two := placetest.Package(t, "one"), placetest.Package(t, "two")
	for name, old := range map[string]*place.Package{"new": nil, "replace": &one} {
		t.Run(name, func(t *testing.T) {
			for i := 1; ; i++ {
				base := t.TempDir()
				target := filepath.Join(base, "out")
				if old != nil {
					placetest.Publish(t, Place{Path: target}, *old)
				}
				before := placetest.Tree(t, base)
				var n atomic.Int64
				var failed atomic.Value
				o := newOrigin(t, two)
				_, _, err := Pull(t.Context(), o, target, PullOptions{Replace: true, Files: 1, step: func(a string) error {
					if n.Add(1) == int64(i) {
						failed.Store(a)
						return &os.PathError{Op: "write", Path: a, Err: syscall.ENOSPC}
					}
					return nil
				}})
				action, ok := failed.Load().(string)
				if !ok {
					if i < 8 {
						t.Errorf("only %d steps", i-1)
					}
					break
				}
				if !afterCommit(action) {
					if !errors.Is(err, syscall.ENOSPC) {
						t.Errorf("%s: got %v", action, err)
					}
					got := placetest.Tree(t, base)
					maps.DeleteFunc(got, func(k, _ string) bool { return strings.HasPrefix(k, "out.pull-") })
					if diff := cmp.Diff(before, got); diff != "" {
						t.Errorf("%s: the disk changed (-before +after):\n%s", action, diff)
					}
				} else if err != nil {
					t.Errorf("%s: %v", action, err)
				}
				mustPull(t, o, target, PullOptions{Replace: true})
				if !afterCommit(action) {
					placetest.Want(t, target, two)
				}
			}
		})
	}
}

func TestTwoPullers(t *testing.T) {
	p := placetest.Package(t, "one")
	o := newOrigin(t, p)
	target := filepath.Join(t.TempDir(), "out")
	var wg sync.WaitGroup
	got := make([]Pulled, 4)
	errs := make([]error, len(got))
	for i := range got {
		wg.Go(func() { _, got[i], errs[i] = Pull(t.Context(), o, target, PullOptions{}) })
	}
	wg.Wait()
	count := map[place.Status]int{}
	for i := range got {
		if errs[i] != nil {
			t.Error(errs[i])
		}
		count[got[i].Status]++
	}
	if diff := cmp.Diff(map[place.Status]int{place.Published: 1, place.Unchanged: len(got) - 1}, count); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if o.sent.Load() != p.Manifest.Bytes() {
		t.Errorf("%d bytes sent, the package has %d", o.sent.Load(), p.Manifest.Bytes())
	}
	placetest.Want(t, target, p)
}

const (
	pullFrom  = "PULL_TEST_FROM"
	pullTo    = "PULL_TEST_TO"
	pullCount = "PULL_TEST_COUNT"
	pullSlice = 256 << 10 // bytes that the place gives at a time
	pullFiles = 2         // at once, each with as many connections

	// pullLost is what a kill costs, in bytes: a piece of each connection. What the process has read is counted, and not
	// what was on its way.
	pullLost = pullFiles * pullFiles * 4 << 20
)

// slowFile gives a file in slices, each of which is written down before it is given.
type slowFile struct {
	io.ReadCloser
	count *os.File
}

func (s slowFile) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b[:min(len(b), pullSlice)])
	fmt.Fprintln(s.count, n)
	time.Sleep(time.Millisecond)
	return n, err
}

// killedPull is the process that TestPullKilled kills.
func killedPull(from string) error {
	count, err := os.OpenFile(os.Getenv(pullCount), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	dir := origin(from)
	data, err := dir.Read(context.Background(), manifest.FileName, manifest.MaxSize)
	if err != nil {
		return err
	}
	o := &fakeOrigin{data: data, open: func(f manifest.File, off, n int64) (io.ReadCloser, error) {
		r, err := dir.Range(f)(context.Background(), off, n)
		return slowFile{r, count}, err
	}}
	_, _, err = Pull(context.Background(), o, os.Getenv(pullTo),
		PullOptions{Replace: true, Files: pullFiles, Transfer: transfer.Options{Connections: pullFiles, Pause: time.Millisecond}})
	return err
}

// TestPullKilled kills a puller again and again, at any moment, LLMEXPORT_KILLS times in all. The directory is always
// one of two packages or absent, and not much travels twice.
func TestPullKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	kills := placetest.Kills(10)
	one := placetest.Package(t, "one")
	from := filepath.Join(t.TempDir(), "from")
	big := placetest.Package(t, "two")
	big.Manifest.Files = nil
	random := rand.New(rand.NewPCG(1, 2))
	content := rand.NewChaCha8([32]byte{})
	for i, size := range []int{14 << 20, 0, 11 << 20, 1 << 20, 9 << 20, 2 << 20} {
		b := make([]byte, size+random.IntN(1<<20))
		_, _ = content.Read(b)
		name := fmt.Sprintf("part%d.bin", i)
		placetest.Write(t, filepath.Join(big.Dir, name), string(b))
		f, _ := manifest.HashFile(t.Context(), filepath.Join(big.Dir, name))
		big.Manifest.Files = append(big.Manifest.Files, f)
	}
	for _, name := range []string{"config.json", "llm.mnn", "llm.mnn.weight", "sub"} {
		if err := os.RemoveAll(filepath.Join(big.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	placetest.Publish(t, Place{Path: from}, big)
	target := filepath.Join(t.TempDir(), "out")
	count := filepath.Join(t.TempDir(), "count")
	rounds, total := 0, int64(0)
	for killed := 0; killed < kills; {
		if rounds == 0 {
			if err := os.RemoveAll(target); err != nil {
				t.Fatal(err)
			}
			os.Remove(count)
			placetest.Publish(t, Place{Path: target}, one)
		}
		rounds++
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), pullFrom+"="+from, pullTo+"="+target, pullCount+"="+count)
		var out bytes.Buffer
		cmd.Stderr = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(random.IntN(150))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		p, operr := place.OpenVerified(t.Context(), target)
		if operr != nil && !errors.Is(operr, fs.ErrNotExist) {
			t.Fatalf("the target is damaged: %v", operr)
		}
		switch {
		case cmd.ProcessState.ExitCode() > 0:
			t.Fatalf("%v: %s", err, out.String())
		case err != nil:
			killed++
			continue
		}
		if len(p.Manifest.Files) != len(big.Manifest.Files) {
			t.Fatal("the target is not the package")
		}
		placetest.Want(t, target, big)
		var sent int64
		text, err := os.ReadFile(count)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			n, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
			sent += n
		}
		if again := sent - big.Manifest.Bytes(); again > int64(rounds-1)*pullLost {
			t.Errorf("%d kills: %d bytes travelled again, more than %d", rounds-1, again, int64(rounds-1)*pullLost)
		} else {
			total += again
		}
		rounds = 0
	}
	placetest.LogKills(t, kills, total, pullLost)
}
