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
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/publish/manifest"
)

// Store keeps finished artifacts in directories named by what they were made from, so that a run finds what an
// earlier one, or a killed one, has already made:
//
//	<dir>/lock
//	<dir>/<stage>-<key>/          finished: holds done.json
//	<dir>/<stage>-<key>.partial/  under construction, or left by a killed run
type Store struct {
	Dir  string
	lock *flock.Flock
}

const doneFile = "done.json"

// OpenStore makes dir a store and locks it against other runs.
func OpenStore(ctx context.Context, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	s := &Store{Dir: dir, lock: flock.New(filepath.Join(dir, "lock"))}
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
	go programDigest() // the first key needs it
	return s, nil
}

// Close releases the lock.
func (s *Store) Close() error { return s.lock.Unlock() }

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

// Do returns the finished directory of a stage and key, making it if it does not exist. build fills a partial
// directory, which may hold what a killed run left; resumed says so. It need not make its files durable: they all are
// before the directory counts as finished. What build returns is the digest of the content, recorded with it.
func (s *Store) Do(ctx context.Context, stage, key string, build func(dir string, resumed bool) (manifest.Digest, error)) (Artifact, error) {
	final := filepath.Join(s.Dir, stage+"-"+key)
	if a, err := s.find(final); err == nil {
		zerolog.Ctx(ctx).Info().Msg("nothing to do: same inputs, options and program as before")
		return a, nil
	}
	// A finished name without a valid record is not ours to trust.
	if err := os.RemoveAll(final); err != nil {
		return Artifact{}, err
	}
	partial := final + ".partial"
	_, statErr := os.Stat(partial)
	if err := os.MkdirAll(partial, 0o777); err != nil {
		return Artifact{}, err
	}
	digest, err := build(partial, statErr == nil)
	if err != nil {
		return Artifact{}, err
	}
	if err := syncFiles(partial); err != nil {
		return Artifact{}, err
	}
	b, err := json.Marshal(done{Digest: digest})
	if err != nil {
		return Artifact{}, err
	}
	if err := WriteFile(filepath.Join(partial, doneFile), b); err != nil {
		return Artifact{}, err
	}
	if err := os.Rename(partial, final); err != nil {
		return Artifact{}, err
	}
	a, err := s.find(final)
	a.Made = err == nil
	return a, err
}

// syncFiles makes every file below dir durable, all at once: the file system joins what it has to do for them.
func syncFiles(dir string) error {
	var g errgroup.Group
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		g.Go(func() error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
		return nil
	})
	return errors.Join(err, g.Wait())
}

type done struct {
	Digest manifest.Digest `json:"digest"`
}

func (s *Store) find(dir string) (Artifact, error) {
	b, err := os.ReadFile(filepath.Join(dir, doneFile))
	if err != nil {
		return Artifact{}, err
	}
	var d done
	if err := json.Unmarshal(b, &d); err != nil {
		return Artifact{}, err
	}
	if d.Digest, err = manifest.ParseDigest(string(d.Digest)); err != nil {
		return Artifact{}, err
	}
	// The time of last use orders what gc removes.
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, doneFile), now, now)
	return Artifact{Name: filepath.Base(dir), Path: dir, Digest: d.Digest}, nil
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
		e := Entry{Name: it.Name(), Partial: strings.HasSuffix(it.Name(), ".partial")}
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
