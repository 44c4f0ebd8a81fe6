package shared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/pipeline"
)

// underConstruction is a directory with files, and what follows it.
type underConstruction struct {
	t testing.TB
	*follower
}

func follow(t testing.TB, s *Store) underConstruction {
	accept := func(name string) bool { return name != "stray" }
	return underConstruction{t, &follower{store: s, name: "codes-key", dir: t.TempDir(), accept: accept, known: map[string]state{}, sent: map[string]bool{}}}
}

// write writes a file at another time than before.
func (u underConstruction) write(name, text string) {
	u.t.Helper()
	at := filepath.Join(u.dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, []byte(text), 0o666)); err != nil {
		u.t.Fatal(err)
	}
}

func (u underConstruction) offered() {
	u.t.Helper()
	if err := u.offer(u.t.Context()); err != nil {
		u.t.Fatal(err)
	}
}

// resumed returns what another machine gets, sorted, as name=content.
func (u underConstruction) resumed(more int64) (list []string) {
	u.t.Helper()
	dir := u.t.TempDir()
	found, err := u.store.Resume(u.t.Context(), u.name, dir, more)
	if err != nil {
		u.t.Fatal(err)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	inside, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, at := range append(names, inside...) {
		if b, err := os.ReadFile(at); err == nil {
			rel, _ := filepath.Rel(dir, at)
			list = append(list, filepath.ToSlash(rel)+"="+string(b))
		}
	}
	if found != (len(list) > 0) {
		u.t.Errorf("found %v, %q", found, list)
	}
	slices.Sort(list)
	return list
}

func (u underConstruction) want(what string, want ...string) {
	u.t.Helper()
	if got := u.resumed(0); !slices.Equal(got, want) {
		u.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A file is offered once it is left alone, a journal at once, and both in directories that are accepted.
func TestFollower(t *testing.T) {
	for name, open := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			u := follow(t, open())
			u.offered()
			u.want("nothing")
			u.write("ops.jsonl", "one\n")
			u.write("00000.codes", "codes")
			u.write("stray", "stray")
			u.write("trial/ops.jsonl", "two\n")
			u.offered()
			u.want("journals first", "ops.jsonl=one\n", "trial/ops.jsonl=two\n")
			u.offered()
			u.want("files left alone", "00000.codes=codes", "ops.jsonl=one\n", "trial/ops.jsonl=two\n")
			u.write("ops.jsonl", "one\nmore\n")
			u.write("00000.codes", "growing")
			u.offered()
			u.want("a file that changes", "ops.jsonl=one\nmore\n", "trial/ops.jsonl=two\n")
			if got := u.resumed(1000); got != nil {
				t.Errorf("resumed %q, which is less", got)
			}
		})
	}
}

// What has not changed is not sent again.
func TestFollowerSendsOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := follow(t, storeIn(t, dir))
	u.write("00000.codes", "codes")
	u.write("journal", "one\n")
	u.offered()
	u.offered()
	if err := os.RemoveAll(filepath.Join(dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	u.offered() // the same
	u.write("journal", "one\ntwo\n")
	u.offered()
	list, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*"))
	if want := digest.Of([]byte("one\ntwo\n")).Hex(); err != nil || len(list) != 1 || filepath.Base(list[0]) != want {
		t.Errorf("sent %q, %v", list, err)
	}
}

// A build that is killed goes on elsewhere: another machine finds the files that it had finished, and the text of the unfinished
// entry is gone once the entry is whole.
func TestKilledElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := storeIn(t, dir)
	first.Every = time.Microsecond
	one, killed := machine(t, first), errors.New("killed")
	_, err := one.Do(t.Context(), &pipeline.Limits{}, "codes", "key", func(p *pipeline.Partial) (digest.Digest, error) {
		for i := range 3 {
			name := fmt.Sprintf("%05d.codes", i)
			if err := os.WriteFile(filepath.Join(p.Dir, name), []byte(name), 0o666); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(filepath.Join(p.Dir, "stray"), nil, 0o666); err != nil {
			return "", err
		}
		for { // until all of them are offered
			_, rec, err := first.record(t.Context(), "codes-key"+partial)
			if err != nil {
				return "", err
			}
			if rec != nil && len(rec.Files) == 3 {
				return "", killed
			}
		}
	}, "*.codes")
	if !errors.Is(err, killed) {
		t.Fatal(err)
	}
	var found []string
	two := machine(t, storeIn(t, dir))
	_, err = two.Do(t.Context(), &pipeline.Limits{}, "codes", "key", func(p *pipeline.Partial) (digest.Digest, error) {
		list, err := os.ReadDir(p.Dir)
		for _, e := range list {
			found = append(found, e.Name())
		}
		return digest.Of(nil), err
	}, "*.codes")
	if want := []string{"00000.codes", "00001.codes", "00002.codes"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, %v", found, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "texts", "codes-key.partial")); !os.IsNotExist(err) {
		t.Errorf("the unfinished entry stays: %v", err)
	}
}

// A damaged unfinished entry is reported and not used.
func TestPartialPoisoned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := follow(t, storeIn(t, dir))
	u.write("journal", "content")
	u.offered()
	sum := digest.Of([]byte("content")).Hex()
	if err := os.WriteFile(filepath.Join(dir, "blobs", sum[:2], sum), []byte("contemt"), 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, log := logged(t)
	d, found := machine(t, storeIn(t, dir)), 0
	_, err := d.Do(ctx, &pipeline.Limits{}, "codes", "key", func(p *pipeline.Partial) (digest.Digest, error) {
		list, err := os.ReadDir(p.Dir)
		found = len(list)
		return digest.Of(nil), err
	}, "journal")
	if err != nil || found != 0 || !strings.Contains(log.String(), "the unfinished entry there is not used") {
		t.Errorf("found %d files, %v: %s", found, err, log)
	}
}

// A file that changes while it is sent is not part of an offer.
func TestFollowerRace(t *testing.T) {
	t.Parallel()
	s := storeIn(t, t.TempDir())
	x := pipeline.RecordedFile{Name: "a", Size: 3, SHA256: digest.Of([]byte("one")).Hex()}
	rec := &pipeline.Record{Files: []pipeline.RecordedFile{x}}
	text, err := rec.Seal("codes-key" + partial)
	if err != nil {
		t.Fatal(err)
	}
	err = s.push(t.Context(), "codes-key"+partial, text, rec, rec.Files, func(pipeline.RecordedFile) (content, error) {
		return inMemory{bytes.NewReader([]byte("two"))}, nil
	})
	if err == nil {
		t.Error("other bytes were stored")
	}
	if _, rec, err := s.record(context.WithoutCancel(t.Context()), "codes-key"+partial); rec != nil || err != nil {
		t.Errorf("%+v, %v", rec, err)
	}
}
