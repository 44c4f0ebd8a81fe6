package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
)

// Store keeps finished artifacts under names derived from everything that they depend on, so that a run reuses the results of
// earlier, killed and concurrent runs.
type Store interface {
	// Do returns the finished directory of a stage and key, building it if it is absent or damaged. Of several runs that need
	// it, one builds it and the others wait. keep are patterns, see [path.Match], of the names that build resumes from in the
	// directory that a killed run left; build must trust only files with a checksum. All other files there are removed first.
	//
	// A build may call Do for entries that it needs. Its own entry is locked meanwhile, so a run waits only for parts of what
	// it builds. As no entry is part of itself, runs cannot wait for each other.
	Do(ctx context.Context, l *Limits, stage, key string, build Build, keep ...string) (Artifact, error)
	// Take returns a finished entry, also one of the shared store; one that is absent or damaged is fs.ErrNotExist.
	Take(ctx context.Context, l *Limits, name string) (Artifact, error)
	// Has returns a finished entry without comparing its files, and reports whether there is one. It waits for nobody.
	Has(stage, key string) (Artifact, bool)
	// Dir returns the directory of small files that outlive a run.
	Dir() string
	// Lock waits for the lock of such a file and returns the function that releases it.
	Lock(ctx context.Context, name string) (unlock func(), err error)
}

// Directory is a Store on disk:
//
//	<dir>/<stage>-<key>/          finished: holds done.json, which lists all other files with their digests
//	<dir>/<stage>-<key>.partial/  under construction, or left by a killed run
//	<dir>/<stage>-<key>.lock      held by the run that builds or removes the entry
//	<dir>/labels/<stage>-<key>    the package that the entry was used for last, see [Label]
//
// Every file of an entry is compared with its digest once in a run before the entry is used, unless this run has written
// it. An entry that differs in a single bit, lacks a file or has an extra one is removed and built again. Files of entries may
// be hard links to one another; a finished file is never written to.
//
// Finished entries are found without waiting. A run holds a shared lock on the done.json of the entries that it uses, which
// only keeps [Directory.Collect] away.
type Directory struct {
	// Shared is asked for entries that are absent here, and offered those that are built here. It may be nil.
	Shared Shared

	dir    string
	warned sync.Once // that Shared cannot be used

	mu   sync.Mutex
	sums map[state]string        // SHA-256 of files that this run has written or read
	used map[string]*flock.Flock // locks of done.json by the name of the entry
}

// OpenStore makes dir a store. Close must follow.
func OpenStore(dir string) (*Directory, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := disk.CheckWritable(dir); err != nil {
		return nil, err
	}
	return &Directory{dir: dir, sums: map[state]string{}, used: map[string]*flock.Flock{}}, nil
}

// Close releases the entries for Collect.
func (s *Directory) Close() (err error) {
	for _, l := range s.used {
		err = errors.Join(err, l.Unlock())
	}
	return err
}

// Dir implements Store.
func (s *Directory) Dir() string { return s.dir }

// Lock implements Store.
func (s *Directory) Lock(ctx context.Context, name string) (unlock func(), err error) {
	return disk.Lock(ctx, s.lockFile(name), "waiting for another run to finish this")
}

// lockFile is held while an entry or a small file is written or removed.
func (s *Directory) lockFile(name string) string { return filepath.Join(s.dir, name+".lock") }

// Partial is an entry under construction.
type Partial struct {
	// Dir is its directory.
	Dir string
	// Name is the name of the finished entry. A build seals the files from which a later run resumes with Name, see
	// [sealed.Marshal], so that the files of another build are not mistaken for them.
	Name string

	sums map[string]string
}

// Knows records the SHA-256, in lower-case hex, that was computed while a file of the directory was written, so that the file
// need not be read again. The file must not change after that.
func (p *Partial) Knows(name, sum string) { p.sums[name] = sum }

// WriteJSON encodes a file of the directory, which [Artifact.ReadJSON] reads, and returns the digest of the file.
func (p *Partial) WriteJSON(name string, v any) (digest.Digest, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return digest.Of(b), os.WriteFile(filepath.Join(p.Dir, name), b, 0o666)
}

// Build fills the directory of an entry and returns the digest of its content. It need not make the files durable.
type Build func(p *Partial) (digest.Digest, error)

// Do implements Store.
func (s *Directory) Do(ctx context.Context, l *Limits, stage, key string, build Build, keep ...string) (Artifact, error) {
	name := stage + "-" + key
	a, err := s.find(ctx, l, stage, name)
	if err == nil {
		return a, nil
	}
	a, err = s.obtain(ctx, l, stage, name, func(error) (Artifact, error) { return s.build(ctx, l, stage, name, build, keep) })
	if err == nil && a.From == Built {
		s.offer(ctx, a)
	}
	return a, err
}

// Take implements Store.
func (s *Directory) Take(ctx context.Context, l *Limits, name string) (Artifact, error) {
	stage, _, _ := strings.Cut(name, "-")
	a, err := s.find(ctx, l, stage, name)
	if err == nil {
		return a, nil
	}
	return s.obtain(ctx, l, stage, name, func(why error) (Artifact, error) {
		if why != errAbsent {
			return Artifact{}, fmt.Errorf("%s: %w", name, why)
		}
		return Artifact{}, fmt.Errorf("%s is neither in the cache nor in the shared store: %w", name, fs.ErrNotExist)
	})
}

// Has implements Store.
func (s *Directory) Has(stage, key string) (Artifact, bool) {
	name := stage + "-" + key
	a := Artifact{Name: name, Path: filepath.Join(s.dir, name), From: Cached}
	rec, err := readRecord(name, a.Path)
	if err != nil {
		return a, false
	}
	a.Digest = rec.Digest
	return a, true
}

// obtain locks an entry, and then finds, fetches or builds it. The function gets the error of fetch.
func (s *Directory) obtain(ctx context.Context, l *Limits, stage, name string,
	build func(why error) (Artifact, error)) (a Artifact, err error) {
	unlock, err := s.Lock(ctx, name)
	if err != nil {
		return a, err
	}
	defer unlock()
	a, err = s.find(ctx, l, stage, name) // another run may have built it by now
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case !errors.Is(err, errAbsent):
		gone, rerr := s.discard(name, err)
		zerolog.Ctx(ctx).Warn().Err(err).Strs("removed", gone).Msg("the cache is damaged: the entries are removed and built again; check the disk")
		if rerr != nil {
			return a, rerr
		}
	}
	if a, err = s.fetch(ctx, l, stage, name); !errors.Is(err, errAbsent) {
		return a, err
	}
	return build(err)
}

// build builds an entry, whose lock is held.
func (s *Directory) build(ctx context.Context, l *Limits, stage, name string, build Build, keep []string) (Artifact, error) {
	p := &Partial{Dir: filepath.Join(s.dir, name+partialSuffix), Name: name, sums: map[string]string{}}
	if err := errors.Join(s.resume(ctx, p, keep), p.prepare(keep)); err != nil {
		return Artifact{}, err
	}
	stop := s.follow(ctx, p, keep)
	digest, err := build(p)
	stop()
	if err == nil {
		err = s.finish(ctx, l, stage, p, digest)
	}
	if err != nil {
		return Artifact{}, err
	}
	return s.place(name, p.Dir, digest, Built)
}

// place gives a finished entry its name.
func (s *Directory) place(name, dir string, digest digest.Digest, from From) (Artifact, error) {
	a := Artifact{Name: name, Path: filepath.Join(s.dir, name), Digest: digest, From: from}
	if err := os.Rename(dir, a.Path); err != nil {
		return Artifact{}, err
	}
	s.use(name)
	return a, disk.SyncDir(s.dir)
}

// use keeps Collect away from an entry until the store is closed. It returns false if Collect is removing the entry.
func (s *Directory) use(name string) bool {
	l := flock.New(filepath.Join(s.dir, name, DoneFile), flock.SetFlag(os.O_RDONLY))
	if ok, err := l.TryRLock(); !ok {
		return err != nil // damaged, or on a file system without locks
	}
	s.disuse(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[name] = l
	return true
}

// disuse undoes use.
func (s *Directory) disuse(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.used[name]; l != nil {
		_ = l.Unlock()
	}
}

const partialSuffix = ".partial"

// kept reports whether a name in a directory under construction matches one of the patterns.
func kept(keep []string, name string) bool {
	return slices.ContainsFunc(keep, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok })
}

// prepare makes the directory, and leaves in it only those files of a killed run that match keep and have no other name, which
// writing to them would change as well.
func (p *Partial) prepare(keep []string) error {
	_ = os.Remove(p.Dir) // unless it is a directory with files
	if err := os.MkdirAll(p.Dir, 0o777); err != nil {
		return err
	}
	return filepath.WalkDir(p.Dir, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || at == p.Dir:
			return err
		case filepath.Dir(at) == p.Dir && !kept(keep, e.Name()):
			if err := os.RemoveAll(at); err != nil || !e.IsDir() {
				return err
			}
			return fs.SkipDir
		case e.IsDir():
			return nil
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
}

// Entry describes a directory of a store, finished or partial.
type Entry struct {
	Name    string
	Size    int64
	Partial bool
	Used    time.Time
	Label   Label
}

// List returns the entries of the store in dir, most recently used first. It needs no lock.
func List(dir string) ([]Entry, error) {
	items, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var list []Entry
	for _, it := range items {
		if !it.IsDir() || it.Name() == labelsDir {
			continue
		}
		e := Entry{Name: it.Name(), Partial: strings.HasSuffix(it.Name(), partialSuffix)}
		e.Size, e.Used = disk.Usage(filepath.Join(dir, it.Name()))
		e.Label = readLabel(dir, strings.TrimSuffix(it.Name(), partialSuffix))
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return list, nil
}

// Collect removes entries, least recently used first, until the rest take at most keep bytes, and returns those it removed.
// Entries that a run is using or building stay.
func (s *Directory) Collect(keep int64) ([]Entry, error) {
	var total int64
	return s.Remove(func(e Entry) bool {
		total += e.Size
		return total > keep
	})
}

// Remove removes the entries that match, and returns those it removed. Match is called for every entry, most recently used first.
// Entries that a run is using or building stay.
func (s *Directory) Remove(match func(Entry) bool) ([]Entry, error) {
	list, err := List(s.dir)
	if err != nil {
		return nil, err
	}
	var gone []Entry
	for _, e := range list {
		if !match(e) {
			continue
		}
		if removed, err := s.remove(e.Name); err != nil {
			return gone, err
		} else if removed {
			gone = append(gone, e)
		}
	}
	return gone, nil
}

// remove removes an entry, finished or not, unless it is in use, and reports whether it did.
func (s *Directory) remove(name string) (bool, error) {
	entry, _, _ := strings.Cut(name, ".")
	unlock, err := disk.TryLock(s.lockFile(entry))
	if unlock == nil || err != nil {
		return false, err
	}
	defer unlock()
	l := flock.New(filepath.Join(s.dir, name, DoneFile), flock.SetFlag(os.O_RDONLY))
	if ok, err := l.TryLock(); !ok && err == nil {
		return false, nil
	}
	if runtime.GOOS == "windows" { // removes no open files
		_ = l.Unlock()
	}
	return true, errors.Join(os.RemoveAll(filepath.Join(s.dir, name)), l.Unlock(), disk.IgnoreAbsent(os.Remove(labelFile(s.dir, entry))))
}

// WriteFile writes a file, which gets its name once it is durable. Several processes may write it at the same time.
func WriteFile(path string, b []byte) error {
	tmp := path + "." + rand.Text() + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
	}
	return err
}
