package pipeline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
)

func openStore(t *testing.T, dir string) *Directory {
	t.Helper()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// do is Store.Do for one stage.
func do(t *testing.T, s *Directory, key string, build Build, keep ...string) (Artifact, error) {
	t.Helper()
	return s.Do(t.Context(), &Limits{Threads: 2}, "stage", key, build, keep...)
}

// builder counts how often it built, and what it found.
type builder struct {
	times int
	found []string
	err   error
}

func (b *builder) build(p *Partial) (digest.Digest, error) {
	b.times++
	b.found = nil
	err := filepath.WalkDir(p.Dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			b.found = append(b.found, filepath.Base(path))
		}
		return err
	})
	for name, text := range map[string]string{"content": "x" + p.Name, "sub/more": "some longer text", "empty": ""} {
		path := filepath.Join(p.Dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666))
	}
	return digest.Of([]byte("x")), errors.Join(err, b.err)
}

// wantEntry demands that the entry of a key has the bytes that a builder makes.
func wantEntry(t *testing.T, s *Directory, key string) {
	t.Helper()
	got := map[string]string{}
	dir := filepath.Join(s.dir, "stage-"+key)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == DoneFile {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		b, err := os.ReadFile(path)
		got[filepath.ToSlash(rel)] = string(b)
		return err
	})
	want := map[string]string{"content": "xstage-" + key, "sub/more": "some longer text", "empty": ""}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("entry %s (-want +got):\n%s%v", key, diff, err)
	}
}

func TestStoreDo(t *testing.T) {
	s := openStore(t, t.TempDir())
	var b builder
	a, err := do(t, s, "key", b.build)
	if err != nil {
		t.Fatal(err)
	}
	if b.times != 1 || len(b.found) > 0 || a.Digest != digest.Of([]byte("x")) || filepath.Base(a.Path) != "stage-key" ||
		a.Name != "stage-key" {
		t.Errorf("first: %+v, %+v", b, a)
	}
	again, err := do(t, s, "key", b.build)
	if err != nil || b.times != 1 || again != (Artifact{a.Name, a.Path, a.Digest, Cached}) {
		t.Errorf("second: built %d times, %+v, %v", b.times, again, err)
	}
	if _, err := do(t, s, "other", b.build); err != nil || b.times != 2 {
		t.Errorf("another key: built %d times, %v", b.times, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	later := openStore(t, s.dir)
	if again, err := do(t, later, "key", b.build); err != nil || b.times != 2 || again != (Artifact{a.Name, a.Path, a.Digest, Cached}) {
		t.Errorf("in another run: built %d times, %+v, %v", b.times, again, err)
	}
}

// What a failed build left is not finished, and of it a later one finds what it asks for.
func TestStoreDoFailed(t *testing.T) {
	s := openStore(t, t.TempDir())
	b := builder{err: errors.New("no space")}
	fail := func() {
		t.Helper()
		if _, err := do(t, s, "key", b.build, "content"); !errors.Is(err, b.err) {
			t.Fatalf("error %v", err)
		}
	}
	fail()
	if _, err := os.Stat(filepath.Join(s.dir, "stage-key")); !os.IsNotExist(err) {
		t.Errorf("a failed build has its name: %v", err)
	}
	partial := filepath.Join(s.dir, "stage-key.partial")
	// Neither a record nor anything else that nobody asked for stays.
	for _, name := range []string{DoneFile, DoneFile + ".tmp", "stray"} {
		if err := os.WriteFile(filepath.Join(partial, name), []byte("{}"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	fail()
	if got := strings.Join(b.found, " "); got != "content" {
		t.Errorf("found %q", got)
	}
	// What would be written through to another file does not stay.
	if runtime.GOOS != "windows" {
		outside, content := filepath.Join(t.TempDir(), "outside"), filepath.Join(partial, "content")
		if err := errors.Join(os.Rename(content, outside), os.Link(outside, content)); err != nil {
			t.Fatal(err)
		}
		fail()
		if text, _ := os.ReadFile(outside); len(b.found) > 0 || string(text) != "xstage-key" {
			t.Errorf("found %q, the other name has %q", b.found, text)
		}
		if err := errors.Join(os.WriteFile(content, nil, 0o666), os.Remove(content), os.Symlink(outside, content)); err != nil {
			t.Fatal(err)
		}
		if fail(); len(b.found) > 0 {
			t.Errorf("found the link %q", b.found)
		}
	}
	b.err = nil
	if _, err := do(t, s, "key", b.build); err != nil || len(b.found) > 0 {
		t.Errorf("without asking for anything: found %q, %v", b.found, err)
	}
	wantEntry(t, s, "key")
}

// An entry that differs from what was recorded, in whatever way, is made again.
func TestDamagedEntry(t *testing.T) {
	edit := func(name string, f func(b []byte) []byte) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			// Bits that a disk loses change no time.
			return errors.Join(err, os.WriteFile(path, f(b), 0o666), os.Chtimes(path, st.ModTime(), st.ModTime()))
		}
	}
	flip := func(i int) func(b []byte) []byte {
		return func(b []byte) []byte { b[(i+len(b))%len(b)] ^= 4; return b }
	}
	other := func(dir string) string { return filepath.Join(filepath.Dir(dir), "stage-other") }
	cases := map[string]func(dir string) error{
		"first byte": edit("content", flip(0)),
		"middle":     edit("sub/more", flip(7)),
		"last byte":  edit("content", flip(-1)),
		"cut":        edit("sub/more", func(b []byte) []byte { return b[:3] }),
		"emptied":    edit("content", func([]byte) []byte { return nil }),
		"longer":     edit("content", func(b []byte) []byte { return append(b, 'x') }),
		"not empty":  edit("empty", func([]byte) []byte { return []byte("x") }),
		"removed":    func(dir string) error { return os.Remove(filepath.Join(dir, "content")) },
		"empty gone": func(dir string) error { return os.Remove(filepath.Join(dir, "empty")) },
		"file more":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "sub", "stray"), nil, 0o666) },
		"directory":  func(dir string) error { return os.Mkdir(filepath.Join(dir, "stray"), 0o777) },
		"swapped": func(dir string) error {
			return os.Rename(filepath.Join(other(dir), "content"), filepath.Join(dir, "content"))
		},
		"mixed up": func(dir string) error {
			return os.Rename(filepath.Join(dir, "content"), filepath.Join(dir, "sub", "more"))
		},
		"a link": func(dir string) error {
			content := filepath.Join(dir, "content")
			return errors.Join(os.Rename(content, filepath.Join(dir, "../x")), os.Symlink("../x", content))
		},
		"other record": func(dir string) error {
			return os.Rename(filepath.Join(other(dir), DoneFile), filepath.Join(dir, DoneFile))
		},
		"other entry":  func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Rename(other(dir), dir)) },
		"no record":    func(dir string) error { return os.Remove(filepath.Join(dir, DoneFile)) },
		"record empty": edit(DoneFile, func([]byte) []byte { return nil }),
		"record cut":   edit(DoneFile, func(b []byte) []byte { return b[:len(b)/2] }),
		"old record":   edit(DoneFile, func([]byte) []byte { return []byte(`{"digest":"` + string(digest.Of(nil)) + `"}`) }),
		"record a directory": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, DoneFile)), os.Mkdir(filepath.Join(dir, DoneFile), 0o777))
		},
		"a file": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, []byte("x"), 0o666)) },
	}
	for i := range 40 { // all over the record
		cases[fmt.Sprint("record byte ", i)] = edit(DoneFile, func(b []byte) []byte { b[i*len(b)/40] ^= 1 << (i % 8); return b })
	}
	if runtime.GOOS == "windows" {
		delete(cases, "a link")
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := openStore(t, dir)
			var b builder
			a, err := do(t, s, "key", b.build)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := do(t, s, "other", b.build); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(damage(a.Path), s.Close()); err != nil {
				t.Fatal(err)
			}
			s = openStore(t, dir)
			for range 2 {
				again, err := do(t, s, "key", b.build)
				if again.From = a.From; again != a || err != nil || b.times != 3 {
					t.Fatalf("%+v, built %d times, %v", again, b.times, err)
				}
				wantEntry(t, s, "key")
			}
			if _, err := do(t, s, "other", b.build); err != nil {
				t.Error(err)
			}
			wantEntry(t, s, "other")
		})
	}
}

// A flip that changes the time is found in the same run; another time alone is no damage.
func TestChangedTime(t *testing.T) {
	s := openStore(t, t.TempDir())
	var b builder
	a, err := do(t, s, "key", b.build)
	path := filepath.Join(a.Path, "content")
	for i, text := range []string{"xstage-key", "ystage-key"} {
		at := time.Now().Add(time.Hour * time.Duration(i+1))
		if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o666), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		if _, err = do(t, s, "key", b.build); err != nil || b.times != 1+i {
			t.Errorf("%s: built %d times, %v", text, b.times, err)
		}
		wantEntry(t, s, "key")
	}
}

// A damaged file takes all entries with it that it belongs to, finished or not, and nothing else is written to.
func TestSharedFile(t *testing.T) {
	s := openStore(t, t.TempDir())
	var b builder
	a, err := do(t, s, "key", b.build)
	if err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(a.Path, "sub", "more")
	outside := filepath.Join(t.TempDir(), "published")
	linked := func(p *Partial) (digest.Digest, error) {
		return "", errors.Join(os.Link(shared, filepath.Join(p.Dir, "link")), os.Link(shared, outside))
	}
	if _, err := do(t, s, "linked", linked); err != nil {
		t.Skip(err) // a file system without hard links
	}
	if _, err := do(t, s, "apart", b.build); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(s.dir, "stage-half.partial")
	err = errors.Join(os.Mkdir(half, 0o777), os.Link(shared, filepath.Join(half, "x")),
		os.WriteFile(shared, []byte("Some longer text"), 0o666), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.dir)
	if _, err := do(t, s, "key", b.build); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, s, "key")
	list, err := List(s.dir)
	if err != nil || len(list) != 2 {
		t.Errorf("left are %+v, %v", list, err)
	}
	if text, err := os.ReadFile(outside); string(text) != "Some longer text" || err != nil {
		t.Errorf("the published file was changed to %q, %v", text, err)
	}
}

// What was computed while a file was written is what is recorded: were it wrong, the next run would find the file damaged.
func TestKnows(t *testing.T) {
	s := openStore(t, t.TempDir())
	times := 0
	build := func(p *Partial) (digest.Digest, error) {
		times++
		p.Knows("a", digest.Of([]byte("b")).Hex())
		return "", os.WriteFile(filepath.Join(p.Dir, "a"), []byte("a"), 0o666)
	}
	for i := range 2 {
		if _, err := do(t, s, "key", build); err != nil || times != i+1 {
			t.Errorf("built %d times, %v", times, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, s.dir)
	}
}

// Who gives up while an entry is checked has not found it damaged.
func TestCheckCancelled(t *testing.T) {
	s := openStore(t, t.TempDir())
	var b builder
	if _, err := do(t, s, "key", b.build); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = openStore(t, s.dir)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if _, err := s.Do(ctx, &Limits{}, "stage", "key", b.build); !errors.Is(err, enough) || b.times != 1 {
		t.Errorf("built %d times, %v", b.times, err)
	}
	wantEntry(t, s, "key")
}

// waiting is a logger that closes told when a run says that it waits.
func waiting(ctx context.Context) (_ context.Context, told chan struct{}) {
	told = make(chan struct{})
	var once sync.Once
	return zerolog.New(nil).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, text string) {
		if strings.HasPrefix(text, "waiting for another run") {
			once.Do(func() { close(told) })
		}
	})).WithContext(ctx), told
}

// Of two runs that need an entry one makes it; the other says that it waits, and uses it. Entries with other keys are made in
// the meantime, and runs that give up do so at once.
func TestDoWaits(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	begun, finish := make(chan struct{}), make(chan struct{})
	var b builder
	first := make(chan Artifact, 1)
	go func() {
		a, err := do(t, s, "key", func(p *Partial) (digest.Digest, error) {
			close(begun)
			<-finish
			return b.build(p)
		})
		if err != nil {
			t.Error(err)
		}
		first <- a
	}()
	<-begun

	other := openStore(t, s.dir)
	if _, err := do(t, other, "other", new(builder).build); err != nil {
		t.Fatal(err)
	}
	never := func(*Partial) (digest.Digest, error) { panic("built twice") }
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ctx, told := waiting(ctx)
	go func() { <-told; cancel(enough) }()
	if _, err := other.Do(ctx, &Limits{}, "stage", "key", never); !errors.Is(err, enough) {
		t.Errorf("gave up: %v", err)
	}
	ctx, told = waiting(t.Context())
	go func() { <-told; close(finish) }()
	second, err := other.Do(ctx, &Limits{}, "stage", "key", never)
	if a := <-first; err != nil || a.From != Built || second.From != Cached || a.Path != second.Path || a.Digest != second.Digest {
		t.Errorf("%+v and %+v, %v", a, second, err)
	}
	wantEntry(t, s, "key")
}

// Many runs at once that need the same entries, some inside of others, make each once and wait for each other in no circle.
func TestDoNested(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var built [4]atomic.Int32
	var entry func(s *Directory, i int) error
	entry = func(s *Directory, i int) error { // needs those of smaller numbers, in either order
		_, err := s.Do(t.Context(), &Limits{}, "stage", fmt.Sprint(i), func(p *Partial) (digest.Digest, error) {
			built[i].Add(1)
			var g errgroup.Group
			for j := range i {
				g.Go(func() error { return entry(s, j) })
			}
			return "", errors.Join(g.Wait(), os.WriteFile(filepath.Join(p.Dir, "x"), []byte{byte(i)}, 0o666))
		})
		return err
	}
	var g errgroup.Group
	for k := range 12 {
		s := openStore(t, dir)
		g.Go(func() error { return entry(s, len(built)-1-k%len(built)) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for i := range built {
		if n := built[i].Load(); n != 1 {
			t.Errorf("entry %d was built %d times", i, n)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.lock")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// childStore has the test binary build an entry in a store for ever.
const childStore = "LLMEXPORT_TEST_STORE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childStore); dir != "" {
		buildForever(dir)
	}
	os.Exit(m.Run())
}

func buildForever(dir string) {
	s, err := OpenStore(dir)
	if err == nil {
		_, err = s.Do(context.Background(), &Limits{}, "stage", "key", func(p *Partial) (digest.Digest, error) {
			if err := os.WriteFile(filepath.Join(p.Dir, "content"), []byte("begun"), 0o666); err != nil {
				return "", err
			}
			fmt.Println("building")
			_, err := os.Stdin.Read(make([]byte, 1)) // until it is killed
			return "", err
		})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A run that is killed while it builds keeps nobody from going on with its entry.
func TestKilledBuild(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childStore+"="+s.dir)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "building") {
		t.Fatalf("%q, %v", line, err)
	}
	if gone, err := s.Collect(0); err != nil || len(gone) > 0 {
		t.Errorf("removed what is being built: %+v, %v", gone, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	var b builder
	if _, err := do(t, s, "key", b.build, "content"); err != nil || strings.Join(b.found, " ") != "content" {
		t.Errorf("found %q, %v", b.found, err)
	}
	wantEntry(t, s, "key")
}

// What a run uses stays until it ends.
func TestCollectInUse(t *testing.T) {
	t.Parallel()
	s, other := openStore(t, t.TempDir()), (*Directory)(nil)
	var b builder
	for _, key := range []string{"key", "unused"} {
		other = openStore(t, s.dir)
		if _, err := do(t, other, key, b.build); err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := do(t, s, "key", b.build); err != nil {
		t.Fatal(err)
	}
	if gone, err := other.Collect(0); err != nil || len(gone) != 1 || gone[0].Name != "stage-unused" {
		t.Errorf("removed %+v, %v", gone, err)
	}
	wantEntry(t, s, "key")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if gone, err := other.Collect(0); err != nil || len(gone) != 1 {
		t.Errorf("removed %+v, %v", gone, err)
	}
}

func TestListAndCollect(t *testing.T) {
	s := openStore(t, t.TempDir())
	for i, name := range []string{"a-1", "b-2", "c-3.partial"} {
		dir := filepath.Join(s.dir, name)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "x")
		if err := os.WriteFile(file, make([]byte, 100), 0o666); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(-time.Duration(i+1) * time.Hour)
		if err := os.Chtimes(file, used, used); err != nil {
			t.Fatal(err)
		}
	}
	list, err := List(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		if e.Size != 100 || e.Partial != strings.HasSuffix(e.Name, ".partial") {
			t.Errorf("%+v", e)
		}
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "a-1 b-2 c-3.partial" {
		t.Errorf("order %s", got)
	}
	gone, err := s.Collect(150)
	if err != nil || len(gone) != 2 || gone[0].Name != "b-2" {
		t.Errorf("collected %+v, %v", gone, err)
	}
	if list, _ := List(s.dir); len(list) != 1 || list[0].Name != "a-1" {
		t.Errorf("left %+v", list)
	}
	if list, err := List(filepath.Join(s.dir, "absent")); err != nil || list != nil {
		t.Errorf("absent store: %v, %v", list, err)
	}
}
