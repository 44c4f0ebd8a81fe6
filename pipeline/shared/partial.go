package shared

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/pipeline"
)

const (
	// partial follows the name of an entry under construction.
	partial = ".partial"
	// restShare is how many times longer than an offer the wait after it is at least.
	restShare = 9
)

// Resume implements pipeline.Shared.
func (s *Store) Resume(ctx context.Context, name, dir string, more int64) (found bool, err error) {
	_, rec, err := s.record(ctx, name+partial)
	if err != nil || rec == nil || rec.Size() <= more {
		return err != nil && damaged(err), err
	}
	if err := s.pull(ctx, rec, dir); err != nil {
		return damaged(err), err
	}
	return true, nil
}

// Follow implements pipeline.Shared. Journals are read first, and other files are offered once they were the same at two looks, so
// that a file which a journal lists is either whole or absent. Offering takes at most a tenth of the time.
func (s *Store) Follow(ctx context.Context, name, dir string, accept func(name string) bool) {
	f := &follower{store: s, name: name, dir: dir, accept: accept, known: map[string]state{}, sent: map[string]bool{}}
	least := cmp.Or(s.Every, every)
	for wait := least; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		if err := f.offer(ctx); err != nil && ctx.Err() == nil {
			zerolog.Ctx(ctx).Debug().Err(err).Str("entry", name).Msg("the unfinished entry could not be offered")
		}
		wait = max(least, restShare*time.Since(began))
	}
}

// follower offers an entry under construction.
type follower struct {
	store  *Store
	name   string
	dir    string
	accept func(name string) bool
	known  map[string]state // files at the last look, by name
	sent   map[string]bool  // blobs that the last offer was about
	last   []byte           // the text of the last offer
}

// state is a file as it was at a look.
type state struct {
	size int64
	time time.Time
	sum  string // SHA-256 in hex; empty until the file was left alone between two looks
}

// offer sends what has changed since the last offer.
func (f *follower) offer(ctx context.Context) error {
	names, err := f.names()
	if err != nil {
		return err
	}
	var rec pipeline.Record
	journals := map[string][]byte{}
	for _, name := range names {
		x, journal, err := f.look(ctx, name)
		if err != nil {
			return err
		}
		if x.SHA256 != "" {
			rec.Files, journals[name] = append(rec.Files, x), journal
		}
	}
	slices.SortFunc(rec.Files, func(a, b pipeline.RecordedFile) int { return strings.Compare(a.Name, b.Name) })
	text, err := rec.Seal(f.name + partial)
	if err != nil || len(rec.Files) == 0 || bytes.Equal(text, f.last) {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(rec.Files), func(x pipeline.RecordedFile) bool { return f.sent[x.SHA256] })
	err = f.store.push(ctx, f.name+partial, text, &rec, fresh, func(x pipeline.RecordedFile) (content, error) {
		if t := journals[x.Name]; t != nil {
			return inMemory{bytes.NewReader(t)}, nil
		}
		return disk.Open(filepath.Join(f.dir, filepath.FromSlash(x.Name)))
	})
	if err != nil {
		return err
	}
	f.last, f.sent = text, map[string]bool{}
	for _, x := range rec.Files {
		f.sent[x.SHA256] = true
	}
	return nil
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// names lists the files to offer, journals first.
func (f *follower) names() (names []string, err error) {
	err = filepath.WalkDir(f.dir, func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || at == f.dir {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(f.dir, at)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		top, _, _ := strings.Cut(name, "/")
		switch {
		case !f.accept(top) && e.IsDir():
			return fs.SkipDir
		case f.accept(top) && e.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names, err
}

// rank puts journals first.
func rank(name string) int {
	if isJournal(name) {
		return 0
	}
	return 1
}

// isJournal reports whether a file lists other files once those are finished. Its lines are only ever added to.
func isJournal(name string) bool {
	base := path.Base(name)
	return base == "journal" || path.Ext(base) == ".jsonl"
}

// look returns a file as it is now, without a digest if it is not to be offered yet, and the content of a journal.
func (f *follower) look(ctx context.Context, name string) (x pipeline.RecordedFile, journal []byte, err error) {
	at := filepath.Join(f.dir, filepath.FromSlash(name))
	if isJournal(name) {
		if journal, err = disk.ReadFile(at, maxText); err != nil {
			return x, nil, disk.IgnoreAbsent(err)
		}
		return pipeline.RecordedFile{Name: name, Size: int64(len(journal)), SHA256: digest.Of(journal).Hex()}, journal, nil
	}
	st, err := os.Lstat(at)
	if err != nil || !st.Mode().IsRegular() {
		return x, nil, disk.IgnoreAbsent(err)
	}
	was, now := f.known[name], state{size: st.Size(), time: st.ModTime()}
	if was.size == now.size && was.time.Equal(now.time) {
		if now.sum = was.sum; now.sum == "" {
			n, sum, err := digest.File(ctx, at)
			if err != nil || n != now.size {
				return x, nil, disk.IgnoreAbsent(err)
			}
			now.sum = sum.Hex()
		}
	}
	f.known[name] = now
	return pipeline.RecordedFile{Name: name, Size: now.size, SHA256: now.sum}, nil, nil
}
