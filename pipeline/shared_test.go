package pipeline

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
)

// sharedDir is a shared store in a directory; err is what its calls fail with.
type sharedDir struct {
	dir string
	err error
}

func (d *sharedDir) Fetch(_ context.Context, name, dir string) (bool, error) {
	err := os.CopyFS(dir, os.DirFS(filepath.Join(d.dir, name)))
	if errors.Is(err, os.ErrNotExist) {
		return false, d.err
	}
	return true, errors.Join(err, d.err)
}

func (d *sharedDir) Offer(_ context.Context, name, dir string) error {
	to := filepath.Join(d.dir, name)
	return errors.Join(d.err, os.RemoveAll(to), os.CopyFS(to, os.DirFS(dir)))
}

func (d *sharedDir) Resume(_ context.Context, name, dir string, more int64) (bool, error) {
	from := filepath.Join(d.dir, name+partialSuffix)
	b, err := os.ReadFile(filepath.Join(from, "content"))
	if err != nil || int64(len(b)) <= more {
		return false, d.err
	}
	return true, errors.Join(os.CopyFS(dir, os.DirFS(from)), d.err)
}

// Follow offers once, at the end, what the build has left.
func (d *sharedDir) Follow(ctx context.Context, name, dir string, accept func(string) bool) {
	<-ctx.Done()
	if accept("content") && !accept("stray") {
		_ = os.CopyFS(filepath.Join(d.dir, name+partialSuffix), os.DirFS(dir))
	}
}

// machine opens the store of another machine, and closes it at the end of the test.
func (d *sharedDir) machine(t *testing.T) *Directory {
	t.Helper()
	s := openStore(t, t.TempDir())
	s.Shared = d
	return s
}

// logInto returns a context that logs into a buffer.
func logInto(ctx context.Context) (context.Context, *bytes.Buffer) {
	var log bytes.Buffer
	return zerolog.New(zerolog.SyncWriter(&log)).WithContext(ctx), &log
}

// What one machine has built another one finds, durable and whole, also after it lost it.
func TestShared(t *testing.T) {
	t.Parallel()
	d := &sharedDir{dir: t.TempDir()}
	one, two := d.machine(t), d.machine(t)
	var b builder
	a, err := do(t, one, "key", b.build)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again, err := do(t, two, "key", b.build)
		if err != nil || again.Digest != a.Digest || again.Name != a.Name || filepath.Dir(again.Path) != two.dir {
			t.Errorf("%+v, %v", again, err)
		}
		wantEntry(t, two, "key")
		if err := os.WriteFile(filepath.Join(again.Path, "content"), []byte("lost"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := List(two.dir); b.times != 1 || err != nil || len(list) != 1 {
		t.Errorf("built %d times, left %+v, %v", b.times, list, err)
	}
}

// A damaged entry of the shared store is refused, built again and replaced; what a killed build left is still resumed.
func TestSharedDamaged(t *testing.T) {
	t.Parallel()
	write := func(name, text string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666) }
	}
	for name, damage := range map[string]func(dir string) error{
		"other bytes":   write("content", "ystage-key"),
		"another size":  write("content", "x"),
		"one more":      write("stray", ""),
		"one less":      func(dir string) error { return os.Remove(filepath.Join(dir, "empty")) },
		"no record":     func(dir string) error { return os.Remove(filepath.Join(dir, DoneFile)) },
		"a cut record":  write(DoneFile, "{"),
		"other entry":   func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Rename(dir+"2", dir)) },
		"nothing of it": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o777)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &sharedDir{dir: t.TempDir()}
			one, two := d.machine(t), d.machine(t)
			var b builder
			for _, key := range []string{"key", "key2"} {
				if _, err := do(t, one, key, b.build); err != nil {
					t.Fatal(err)
				}
			}
			partial := filepath.Join(two.dir, "stage-key.partial")
			err := errors.Join(damage(filepath.Join(d.dir, "stage-key")), os.Mkdir(partial, 0o777), write("content", "begun")(partial))
			if err != nil {
				t.Fatal(err)
			}
			ctx, log := logInto(t.Context())
			if _, err := two.Do(ctx, &Limits{}, "stage", "key", b.build, "content"); err != nil || b.times != 3 || strings.Join(b.found, " ") != "content" {
				t.Errorf("built %d times, found %q, %v", b.times, b.found, err)
			}
			if !strings.Contains(log.String(), "the shared store is damaged") {
				t.Errorf("log %s", log)
			}
			wantEntry(t, two, "key")
			three := d.machine(t)
			if _, err := do(t, three, "key", b.build); err != nil || b.times != 3 {
				t.Errorf("replaced: built %d times, %v", b.times, err)
			}
		})
	}
}

// A shared store that does not work is reported once, and changes nothing else.
func TestSharedFails(t *testing.T) {
	t.Parallel()
	d := &sharedDir{dir: t.TempDir(), err: errors.New("no route")}
	s := d.machine(t)
	ctx, log := logInto(t.Context())
	var b builder
	for _, key := range []string{"key", "other"} {
		if _, err := s.Do(ctx, &Limits{}, "stage", key, b.build); err != nil {
			t.Error(err)
		}
		wantEntry(t, s, key)
	}
	if n := strings.Count(log.String(), `"level":"warn"`); n != 1 || !strings.Contains(log.String(), "no route") || b.times != 2 {
		t.Errorf("built %d times, %d warnings: %s", b.times, n, log)
	}
}

// cancels ends the run while it fetches.
type cancels struct {
	sharedDir
	cancel context.CancelCauseFunc
	cause  error
}

func (c *cancels) Fetch(context.Context, string, string) (bool, error) {
	c.cancel(c.cause)
	return false, c.cause
}

func TestSharedCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	c := &cancels{cancel: cancel, cause: errors.New("enough")}
	s := openStore(t, t.TempDir())
	s.Shared = c
	var b builder
	if _, err := s.Do(ctx, &Limits{}, "stage", "key", b.build); !errors.Is(err, c.cause) || b.times != 0 {
		t.Errorf("built %d times, %v", b.times, err)
	}
}

// What a build that failed has offered another machine resumes, unless it has more itself.
func TestSharedResume(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ here, want string }{{"", "begun there"}, {"x", "begun there"}, {"more has begun here", "more has begun here"}} {
		d := &sharedDir{dir: t.TempDir()}
		one, two := d.machine(t), d.machine(t)
		killed := errors.New("killed")
		_, err := one.Do(t.Context(), &Limits{}, "stage", "key", func(p *Partial) (digest.Digest, error) {
			return "", errors.Join(killed, os.WriteFile(filepath.Join(p.Dir, "content"), []byte("begun there"), 0o666))
		}, "content")
		if !errors.Is(err, killed) {
			t.Fatal(err)
		}
		partial := filepath.Join(two.dir, "stage-key"+partialSuffix)
		if c.here != "" {
			if err := errors.Join(os.Mkdir(partial, 0o777), os.WriteFile(filepath.Join(partial, "content"), []byte(c.here), 0o666)); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		_, err = two.Do(t.Context(), &Limits{}, "stage", "key", func(p *Partial) (digest.Digest, error) {
			b, err := os.ReadFile(filepath.Join(p.Dir, "content"))
			got = string(b)
			return "", errors.Join(killed, err)
		}, "content")
		if !errors.Is(err, killed) || got != c.want {
			t.Errorf("here %q: resumed %q, %v", c.here, got, err)
		}
	}
}

// Take finds entries here and in the shared store, and builds none.
func TestTake(t *testing.T) {
	t.Parallel()
	d := &sharedDir{dir: t.TempDir()}
	one, two := d.machine(t), d.machine(t)
	if _, err := two.Take(t.Context(), &Limits{}, "stage-key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	var b builder
	a, err := do(t, one, "key", b.build)
	if err != nil || a.From != Built {
		t.Fatal(a, err)
	}
	for _, want := range []From{Pulled, Cached} {
		got, err := two.Take(t.Context(), &Limits{}, "stage-key")
		if err != nil || got.Digest != a.Digest || got.From != want {
			t.Errorf("%+v, %v, want %s", got, err, want)
		}
		wantEntry(t, two, "key")
	}
	if list, err := List(two.dir); err != nil || len(list) != 1 {
		t.Errorf("left %+v, %v", list, err)
	}
	// A store that cannot be asked may have the entry.
	d = &sharedDir{dir: t.TempDir(), err: errors.New("no route")}
	if _, err := d.machine(t).Take(t.Context(), &Limits{}, "stage-key"); !errors.Is(err, d.err) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no route: %v", err)
	}
}
