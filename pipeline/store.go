package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/publish/manifest"
)

// Store keeps finished artifacts in directories named by what they were made from, so that a run finds what an
// earlier one, or a killed one, has already made:
//
//	<dir>/lock
//	<dir>/<stage>-<key>/          finished: holds done.json, which lists all other files with their digests
//	<dir>/<stage>-<key>.partial/  under construction, or left by a killed run
//
// Nothing is taken over that was not compared with its digest: every file of an entry is read once in a run before the
// entry is used, unless this run has written it. An entry that differs in a single bit, lacks a file or has one more is
// removed and made again. Files of entries may be hard links to one another; nobody writes to a file once it is finished.
type Store struct {
	Dir  string
	lock *flock.Flock

	digesting chan struct{} // closed when the digest of the program is known

	mu   sync.Mutex
	sums map[state]string // SHA-256 of files that this run has written or read
}

// OpenStore makes dir a store and locks it against other runs.
func OpenStore(ctx context.Context, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	s := &Store{Dir: dir, lock: flock.New(filepath.Join(dir, "lock")), digesting: make(chan struct{}), sums: map[state]string{}}
	ok, err := s.lock.TryLock()
	if err == nil && !ok {
		zerolog.Ctx(ctx).Info().Str("cache", dir).Msg("waiting for another run that uses the same cache")
		ok, err = s.lock.TryLockContext(ctx, 200*time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("cache %s: %w", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("cache %s is in use", dir)
	}
	go func() {
		defer close(s.digesting)
		_, _ = programDigest() // the first key needs it, and reports its error
	}()
	return s, nil
}

// Close releases the lock.
func (s *Store) Close() error {
	<-s.digesting
	return s.lock.Unlock()
}

// Key digests what a stage's result depends on: everything given, and the program itself, because another
// version of the program may make other bytes of the same inputs.
func Key(stage string, parts ...any) (string, error) {
	code, err := programDigest()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(append([]any{stage, code}, parts...))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12]), nil
}

// programDigest is the SHA-256 of the running executable.
var programDigest = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})

// Partial is an entry under construction.
type Partial struct {
	// Dir is its directory.
	Dir string
	// Name is the name of the finished entry, made of stage and key. What a build writes for a later run to resume from it
	// seals with Name, see [sealed.Marshal], so that nothing left by another build passes for it.
	Name string

	sums map[string]string
}

// Knows notes the SHA-256, in lower-case hex, of a file of the directory that was computed while it was written, so that
// it need not be read once more. The file must not change any more.
func (p *Partial) Knows(name, sum string) { p.sums[name] = sum }

// Build fills the directory of an entry and returns the digest of its content. It need not make the files durable.
type Build func(p *Partial) (manifest.Digest, error)

// Do returns the finished directory of a stage and key, making it if it does not exist or is damaged. keep are patterns,
// see [path.Match], of the names that build resumes from, in the directory of a killed run: build must believe nothing of
// them that has no checksum. Everything else that such a run left is removed before.
func (j *Job) Do(ctx context.Context, stage, key string, build Build, keep ...string) (Artifact, error) {
	return j.Store.do(ctx, &j.Limits, stage, key, build, keep)
}

func (s *Store) do(ctx context.Context, l *Limits, stage, key string, build Build, keep []string) (Artifact, error) {
	name := stage + "-" + key
	final := filepath.Join(s.Dir, name)
	a, err := s.find(ctx, l, stage, name)
	switch {
	case err == nil:
		zerolog.Ctx(ctx).Info().Msg("nothing to do: same inputs, options and program as before")
		return a, nil
	case ctx.Err() != nil:
		return Artifact{}, context.Cause(ctx)
	case !errors.Is(err, errAbsent):
		gone, rerr := s.discard(name, err)
		zerolog.Ctx(ctx).Warn().Err(err).Strs("removed", gone).
			Msg("the cache is damaged: the entries are removed and made again; check the disk")
		if rerr != nil {
			return Artifact{}, rerr
		}
	}
	p := &Partial{Dir: final + partialSuffix, Name: name, sums: map[string]string{}}
	if err := p.prepare(keep); err != nil {
		return Artifact{}, err
	}
	digest, err := build(p)
	if err != nil {
		return Artifact{}, err
	}
	if err := s.finish(ctx, l, stage, p, digest); err != nil {
		return Artifact{}, err
	}
	if err := os.Rename(p.Dir, final); err != nil {
		return Artifact{}, err
	}
	return Artifact{Name: name, Path: final, Digest: digest}, disk.SyncDir(s.Dir)
}

const partialSuffix = ".partial"

// prepare makes the directory with nothing in it but the kept files of a killed run. A kept file has one name only, so
// that whoever writes to it changes no other file.
func (p *Partial) prepare(keep []string) error {
	dir := p.Dir
	if st, err := os.Lstat(dir); err == nil && !st.IsDir() {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	items, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	kept := func(e fs.DirEntry) bool {
		return slices.ContainsFunc(keep, func(pattern string) bool {
			ok, err := path.Match(pattern, e.Name())
			return ok && err == nil
		})
	}
	for _, e := range items {
		at := filepath.Join(dir, e.Name())
		if !kept(e) {
			if err := os.RemoveAll(at); err != nil {
				return err
			}
			continue
		}
		err := filepath.WalkDir(at, func(at string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if _, links, ok := disk.IdentityOf(info); info.Mode().IsRegular() && (!ok || links == 1) {
				return nil
			}
			return os.Remove(at)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Entry is one directory of a store.
type Entry struct {
	Name    string
	Size    int64
	Partial bool
	Used    time.Time
}

// List returns the entries of the store in dir, most recently used first. It needs no lock.
func List(dir string) ([]Entry, error) {
	items, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, it := range items {
		if !it.IsDir() {
			continue
		}
		e := Entry{Name: it.Name(), Partial: strings.HasSuffix(it.Name(), partialSuffix)}
		_ = filepath.Walk(filepath.Join(dir, it.Name()), func(_ string, fi os.FileInfo, err error) error {
			if err == nil && fi.Mode().IsRegular() {
				e.Size += fi.Size()
				if fi.ModTime().After(e.Used) {
					e.Used = fi.ModTime()
				}
			}
			return nil
		})
		list = append(list, e)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Used.After(list[j].Used) })
	return list, nil
}

// Collect removes entries until those that stay are at most keep bytes, least recently used first, and tells
// what it removed.
func (s *Store) Collect(keep int64) ([]Entry, error) {
	list, err := List(s.Dir)
	if err != nil {
		return nil, err
	}
	var gone []Entry
	var total int64
	for _, e := range list {
		total += e.Size
		if total <= keep {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.Dir, e.Name)); err != nil {
			return gone, err
		}
		gone = append(gone, e)
	}
	return gone, nil
}

// WriteFile writes a file and makes it durable before it has its name.
func WriteFile(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
	}
	return err
}
