package shared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/blob"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/fakes3"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/oci"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/publish/s3"
)

// quick are retries that do not wait.
var quick = transfer.Options{Pause: time.Microsecond}

// storeIn returns a store in a directory, as one machine has it.
func storeIn(t testing.TB, dir string) *Store {
	t.Helper()
	b, err := blob.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := New(b)
	s.patience = quick
	return s
}

// machine is the local store of a machine.
func machine(t testing.TB, s *Store) *pipeline.Directory {
	t.Helper()
	d, err := pipeline.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	d.Shared = s
	return d
}

// contents of the files of an entry. Two files are equal, one is empty, one has a part of its own.
func contents(seed string) map[string]string {
	return map[string]string{"one": seed, "same": seed, "empty": "", "dir/large": strings.Repeat("0123456789abcdef", 1<<16), "dir/deep/small": "x"}
}

// build makes an entry of files, and counts.
func build(times *int, files map[string]string) pipeline.Build {
	return func(p *pipeline.Partial) (digest.Digest, error) {
		*times++
		for name, text := range files {
			at := filepath.Join(p.Dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, []byte(text), 0o666)); err != nil {
				return "", err
			}
		}
		return digest.Of([]byte(files["one"])), nil
	}
}

func wantFiles(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	got := 0
	for name, text := range want {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || string(b) != text {
			t.Errorf("%s: %d bytes of %d, %v", name, len(b), len(text), err)
		}
	}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			got++
		}
		return err
	})
	if got != len(want)+1 {
		t.Errorf("%d files, want %d and the record", got, len(want))
	}
}

// logged returns a context that logs into a buffer.
func logged(t testing.TB) (context.Context, *bytes.Buffer) {
	var log bytes.Buffer
	return zerolog.New(zerolog.SyncWriter(&log)).WithContext(t.Context()), &log
}

// kinds are stores of every kind, each opened as often as wanted.
func kinds(t *testing.T) map[string]func() *Store {
	bucket, registry, dir := placetest.NewS3(t), placetest.NewOCI(t), t.TempDir()
	must := func(b blob.Store, err error) *Store {
		if err != nil {
			t.Fatal(err)
		}
		s := New(b)
		s.patience = quick
		return s
	}
	return map[string]func() *Store{
		"directory": func() *Store { return storeIn(t, dir) },
		"s3": func() *Store {
			return must(s3.OpenBlobs(fakes3.Bucket+"/team?region=us-east-1&endpoint="+bucket.URL, quick))
		},
		"oci": func() *Store { return must(oci.OpenBlobs(registry.Ref("/team"), quick)) },
	}
}

// What one machine has built another one gets, whole, from a store of every kind.
func TestEntry(t *testing.T) {
	for name, open := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			one, two, times := machine(t, open()), machine(t, open()), 0
			a, err := one.Do(t.Context(), &pipeline.Limits{}, "codes", "key", build(&times, contents("a")))
			if err != nil || a.From != pipeline.Built {
				t.Fatal(a, err)
			}
			b, err := two.Do(t.Context(), &pipeline.Limits{}, "codes", "key", build(&times, contents("b")))
			if err != nil || b.From != pipeline.Pulled || b.Digest != a.Digest || times != 1 {
				t.Fatalf("%+v, built %d times, %v", b, times, err)
			}
			wantFiles(t, b.Path, contents("a"))
		})
	}
}

// Files that are the same in two entries are sent once.
func TestDeduplicated(t *testing.T) {
	bucket := placetest.NewS3(t)
	open := func() *Store {
		b, err := s3.OpenBlobs(fakes3.Bucket+"/x?region=us-east-1&endpoint="+bucket.URL, quick)
		if err != nil {
			t.Fatal(err)
		}
		return New(b)
	}
	times := 0
	for i := range 3 {
		if _, err := machine(t, open()).Do(t.Context(), &pipeline.Limits{}, "codes", fmt.Sprint("key", i), build(&times, contents("a"))); err != nil {
			t.Fatal(err)
		}
	}
	blobs := slices.DeleteFunc(bucket.Keys(), func(k string) bool { return !strings.HasPrefix(k, "x/blobs/") })
	puts := slices.DeleteFunc(bucket.Requests(), func(r string) bool { return !strings.HasPrefix(r, "PUT /bucket/x/blobs/") })
	if len(blobs) != 4 || len(puts) != 4 {
		t.Errorf("%d blobs, sent in %d requests", len(blobs), len(puts))
	}
}

// Damage of every kind is found, reported, not used, and replaced by the next machine that builds the entry.
func TestPoisoned(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	sum := digest.Of([]byte(contents("a")["dir/large"])).Hex()
	blobAt := func(dir string) string { return filepath.Join(dir, "blobs", sum[:2], sum) }
	textAt := func(dir string) string { return filepath.Join(dir, "texts", "codes-key") }
	forge := func(files ...pipeline.RecordedFile) func(dir string) error {
		return func(dir string) error {
			text, err := (&pipeline.Record{Digest: digest.Of(nil), Files: files}).Seal("codes-key")
			return errors.Join(err, os.WriteFile(textAt(dir), text, 0o666))
		}
	}
	for name, damage := range map[string]func(dir string) error{
		"a flipped bit": func(dir string) error {
			b, err := os.ReadFile(blobAt(dir))
			b[1<<19] ^= 1
			return errors.Join(err, os.WriteFile(blobAt(dir), b, 0o666))
		},
		"a truncated blob": func(dir string) error { return os.Truncate(blobAt(dir), 1000) },
		"a longer blob":    func(dir string) error { return os.Truncate(blobAt(dir), 2<<20) },
		"a lost blob":      func(dir string) error { return os.Remove(blobAt(dir)) },
		"a directory in place of a blob": func(dir string) error {
			return errors.Join(os.Remove(blobAt(dir)), os.Mkdir(blobAt(dir), 0o777))
		},
		"a cut text":       func(dir string) error { return os.Truncate(textAt(dir), 50) },
		"an empty text":    func(dir string) error { return os.Truncate(textAt(dir), 0) },
		"no seal":          func(dir string) error { return os.WriteFile(textAt(dir), []byte(`{"files":[]}`), 0o666) },
		"of another entry": func(dir string) error { return os.Rename(filepath.Join(dir, "texts", "codes-other"), textAt(dir)) },
		"outside":          forge(pipeline.RecordedFile{Name: "../../outside", Size: 1, SHA256: digest.Of([]byte("x")).Hex()}),
		"absolute":         forge(pipeline.RecordedFile{Name: "/tmp/outside", Size: 1, SHA256: digest.Of([]byte("x")).Hex()}),
		"a hostile size":   forge(pipeline.RecordedFile{Name: "one", Size: 1 << 60, SHA256: sum}),
		"another size":     forge(pipeline.RecordedFile{Name: "one", Size: 1 << 19, SHA256: sum}),
		"the record again": forge(pipeline.RecordedFile{Name: pipeline.DoneFile, Size: 1, SHA256: digest.Of([]byte("x")).Hex()}),
		"a text too long": func(dir string) error {
			return os.WriteFile(textAt(dir), bytes.Repeat([]byte(" "), maxText+1), 0o666)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, times := t.TempDir(), 0
			one := machine(t, storeIn(t, dir))
			for _, key := range []string{"key", "other"} {
				if _, err := one.Do(t.Context(), &pipeline.Limits{}, "codes", key, build(&times, contents("a"))); err != nil {
					t.Fatal(err)
				}
			}
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			ctx, log := logged(t)
			if name == "a directory in place of a blob" { // which no program of ours puts there, and none removes
				if _, err := machine(t, storeIn(t, dir)).Do(ctx, &pipeline.Limits{}, "codes", "key", build(&times, contents("a"))); err != nil || times != 3 {
					t.Errorf("built %d times, %v", times, err)
				}
				return
			}
			two := machine(t, storeIn(t, dir))
			a, err := two.Do(ctx, &pipeline.Limits{}, "codes", "key", build(&times, contents("a")))
			if err != nil || times != 3 || a.From != pipeline.Built {
				t.Fatalf("%+v, built %d times, %v", a, times, err)
			}
			wantFiles(t, a.Path, contents("a"))
			if !strings.Contains(log.String(), "the shared store is damaged") {
				t.Errorf("log %s", log)
			}
			for _, key := range []string{"key", "other"} {
				if name == "of another entry" && key == "other" {
					continue // gone
				}
				a, err := machine(t, storeIn(t, dir)).Do(t.Context(), &pipeline.Limits{}, "codes", key, build(&times, contents("a")))
				if err != nil || times != 3 || a.From != pipeline.Pulled {
					t.Errorf("%s is not replaced: %+v, built %d times, %v", key, a, times, err)
				}
			}
			for _, at := range []string{filepath.Join(filepath.Dir(filepath.Dir(a.Path)), "outside"), "/tmp/outside"} {
				if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v", at, err)
				}
			}
		})
	}
}

// When much of a store is damaged, a machine that builds an entry again, and one that still has it, make it whole.
func TestPoisonedThroughout(t *testing.T) {
	t.Parallel()
	flip := func(t *testing.T, dir string) {
		err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(at)
			if len(b) > 0 {
				b[len(b)/2] ^= 1
			}
			return errors.Join(err, os.WriteFile(at, b, 0o666))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(t *testing.T, dir string) {
		times := 0
		a, err := machine(t, storeIn(t, dir)).Do(t.Context(), &pipeline.Limits{}, "codes", "key", build(&times, contents("a")))
		if err != nil || a.From != pipeline.Pulled {
			t.Fatalf("%+v, %v", a, err)
		}
		wantFiles(t, a.Path, contents("a"))
	}
	t.Run("built again", func(t *testing.T) {
		dir, times := t.TempDir(), 0
		for range 2 {
			if _, err := machine(t, storeIn(t, dir)).Do(t.Context(), &pipeline.Limits{}, "codes", "key", build(&times, contents("a"))); err != nil {
				t.Fatal(err)
			}
			if times == 1 {
				flip(t, dir)
			}
		}
		if times != 2 {
			t.Errorf("built %d times", times)
		}
		want(t, dir)
	})
	t.Run("offered again", func(t *testing.T) {
		dir, times := t.TempDir(), 0
		s := storeIn(t, dir)
		a, err := machine(t, s).Do(t.Context(), &pipeline.Limits{}, "codes", "key", build(&times, contents("a")))
		if err != nil {
			t.Fatal(err)
		}
		flip(t, filepath.Join(dir, "blobs"))
		ctx, _ := logged(t)
		if _, err := machine(t, storeIn(t, dir)).Take(ctx, &pipeline.Limits{}, a.Name); err == nil {
			t.Error("damaged files were taken")
		}
		if err := s.Offer(t.Context(), a.Name, a.Path); err != nil {
			t.Fatal(err)
		}
		want(t, dir)
	})
}

// Machines that offer the same entry at the same time leave it whole.
func TestOffersTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			times := 0
			d := machine(t, storeIn(t, dir))
			a, err := d.Do(t.Context(), &pipeline.Limits{}, "codes", "key", build(&times, contents("a")))
			if err == nil {
				err = d.Shared.Offer(t.Context(), a.Name, a.Path)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	times := 0
	a, err := machine(t, storeIn(t, dir)).Do(t.Context(), &pipeline.Limits{}, "codes", "key", build(&times, contents("a")))
	if err != nil || times != 0 {
		t.Fatalf("built %d times, %v", times, err)
	}
	wantFiles(t, a.Path, contents("a"))
	left, err := os.ReadDir(filepath.Join(dir, "texts"))
	if err != nil || len(left) != 1 {
		t.Errorf("texts %v, %v", left, err)
	}
}

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "tenant")
	for range 2 {
		if s, err := Open(t.Context(), dir); err != nil || s.String() != dir {
			t.Error(s, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "texts", formatName), []byte("llmexport shared store 2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); !errors.Is(err, fault.ErrUnsupported) {
		t.Errorf("another layout: %v", err)
	}
	for _, ref := range []string{"", "ftp://host/x", "s3://", "s3://b", "s3://bucket/../x", "oci://host", "oci://host/Repo", "oci://host/repo:tag"} {
		if _, err := Open(t.Context(), ref); !errors.As(err, new(*place.RefError)) && ref != "s3://b" {
			t.Errorf("%q: %v", ref, err)
		}
	}
	bucket := placetest.NewS3(t)
	missing := "s3://missing/x?region=us-east-1&endpoint=" + bucket.URL
	if _, err := Open(transfer.Once(t.Context()), missing); err == nil || !strings.Contains(err.Error(), "create the bucket first") {
		t.Errorf("no bucket: %v", err)
	}
}

// Damage in a bucket is found and replaced as in a directory; damage by a registry is found.
func TestPoisonedElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	bucket, registry := placetest.NewS3(t), placetest.NewOCI(t)
	sum := digest.Of([]byte(contents("a")["dir/large"])).Hex()
	spoil := func(change func(b []byte) []byte) {
		o := bucket.Objects()["team/blobs/"+sum]
		bucket.Put("team/blobs/"+sum, fakes3.Object{Body: change(bytes.Clone(o.Body)), ETag: "other", Meta: o.Meta, Time: o.Time})
	}
	flip := func(b []byte) []byte { b[100] ^= 1; return b }
	open := map[string]func() (blob.Store, error){
		"s3": func() (blob.Store, error) {
			return s3.OpenBlobs(fakes3.Bucket+"/team?region=us-east-1&endpoint="+bucket.URL, quick)
		},
		"oci": func() (blob.Store, error) { return oci.OpenBlobs(registry.Ref("/team"), quick) },
	}
	for _, c := range []struct {
		name, kind string
		damage     func()
		lasts      bool // nobody but the registry can mend it
	}{
		{"a flipped bit", "s3", func() { spoil(flip) }, false},
		{"a truncated object", "s3", func() { spoil(func(b []byte) []byte { return b[:1000] }) }, false},
		{"a longer object", "s3", func() { spoil(func(b []byte) []byte { return append(b, 0) }) }, false},
		{"an empty object", "s3", func() { spoil(func([]byte) []byte { return nil }) }, false},
		{"another text", "s3", func() { bucket.Put("team/texts/codes-key", fakes3.Object{Body: []byte("{}"), ETag: "x"}) }, false},
		{"a registry that lies", "oci", func() {
			registry.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, sum) {
					return false
				}
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(flip([]byte(contents("a")["dir/large"]))))
				return true
			})
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			here := func() *pipeline.Directory {
				b, err := open[c.kind]()
				if err != nil {
					t.Fatal(err)
				}
				s := New(b)
				s.patience = quick
				return machine(t, s)
			}
			do := func(ctx context.Context) (int, string) {
				times := 0
				a, err := here().Do(ctx, &pipeline.Limits{}, "codes", "key", build(&times, contents("a")))
				if err != nil {
					t.Fatal(err)
				}
				return times, a.Path
			}
			do(t.Context())
			if times, _ := do(t.Context()); times != 0 {
				t.Fatal("the entry is not there")
			}
			c.damage()
			ctx, log := logged(t)
			times, path := do(ctx)
			wantFiles(t, path, contents("a"))
			if times != 1 || !strings.Contains(log.String(), "the shared store is damaged") {
				t.Errorf("built %d times: %s", times, log)
			}
			if times, _ := do(t.Context()); (times == 0) == c.lasts {
				t.Errorf("after that, built %d times", times)
			}
		})
	}
}
