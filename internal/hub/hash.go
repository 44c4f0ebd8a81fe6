package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/internal/transfer"
)

// maxHashing is how many files are read at once: two keep a disk busy, more make it seek.
const maxHashing = 2

// racy is how old a file must be before its digest is remembered: a coarse clock may not show a second change soon after the
// first.
const racy = 2 * time.Second

// memoName is the name that a memo is sealed with, see [sealed.Marshal].
const memoName = "digests"

// memo remembers the digest of a file as long as its size and modification time stay the same.
type memo struct {
	Version int                  `json:"version"`
	Files   map[string]memoEntry `json:"files"` // by absolute path, links resolved
}

type memoEntry struct {
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime_ns"`
	SHA256 string `json:"sha256"`
}

// HashFiles returns the files of s with the SHA-256 of their content on disk. A digest or size other than the hub's is
// fault.ErrCorrupt. Digests of weights are remembered in cacheFile by path, size and modification time, so that a second run
// does not read them again; with an empty cacheFile they are not remembered. A remembered digest does not prove that the disk
// still holds those bytes, see [Snapshot.Reread]. A damaged cacheFile counts as empty. Files that [Resolve] has just downloaded
// were hashed during the download and are read again only if they have changed since. A wrong file is removed from the cache, so
// that the next Resolve downloads it.
func HashFiles(ctx context.Context, s *Snapshot, cacheFile string) ([]File, error) {
	m := loadMemo(ctx, cacheFile)
	var mu sync.Mutex
	changed := false
	var unread []File
	files := slices.Clone(s.Files)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxHashing)
	for i := range files {
		f := &files[i]
		g.Go(func() error {
			path, err := filepath.Abs(filepath.Join(s.Dir, f.Name))
			if err == nil {
				path, err = filepath.EvalSymlinks(path)
			}
			if err != nil {
				return err
			}
			mu.Lock()
			remembered := m.Files[path]
			mu.Unlock()
			if !isShard(f.Name) {
				remembered = memoEntry{}
			}
			known := remembered
			if e, ok := s.fetched[f.Name]; ok {
				known = e
			}
			e, err := hashFile(ctx, path, known)
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			if e.Size != f.Size || f.SHA256 != "" && f.SHA256 != e.SHA256 {
				return fmt.Errorf("%s: %d bytes with SHA-256 %s on disk, expected %d bytes %s: %w%s",
					f.Name, e.Size, e.SHA256, f.Size, f.SHA256, fault.ErrCorrupt, s.drop(*f))
			}
			f.SHA256 = e.SHA256
			if e == remembered && known == remembered {
				mu.Lock()
				unread = append(unread, *f)
				mu.Unlock()
			}
			if isShard(f.Name) && e != remembered && time.Since(time.Unix(0, e.MTime)) > racy {
				mu.Lock()
				m.Files[path], changed = e, true
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.unread = unread
	if changed && cacheFile != "" {
		if err := m.save(cacheFile); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// Remembered reports whether [HashFiles] would read no shard, because cacheFile has the digests of all.
func Remembered(s *Snapshot, cacheFile string) bool {
	m := loadMemo(context.Background(), cacheFile)
	for _, f := range s.Files {
		if !isShard(f.Name) {
			continue
		}
		path, err := filepath.Abs(filepath.Join(s.Dir, f.Name))
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			return false
		}
		st, err := os.Stat(path)
		if e := m.Files[path]; err != nil || st.Size() != e.Size || st.ModTime().UnixNano() != e.MTime || !digest.IsHex(e.SHA256) {
			return false
		}
	}
	return true
}

// Reread reads the files whose digests the last [HashFiles] took from an earlier process, and compares them: neither size nor
// time reveals bits that a disk has lost. A file that differs is fault.ErrCorrupt and is removed from the cache as HashFiles
// does. Files are read only once.
func (s *Snapshot) Reread(ctx context.Context) error {
	files := &Snapshot{Dir: s.Dir, Repo: s.Repo, Files: s.unread}
	if _, err := HashFiles(ctx, files, ""); err != nil {
		if s.Repo == "" && errors.Is(err, fault.ErrCorrupt) {
			err = fmt.Errorf("%w; its size and time are those of an earlier run: restore it, or touch it if it was meant to change", err)
		}
		return err
	}
	s.unread = nil
	return nil
}

// hashFile returns the entry of the file at path; old is still valid if size and time have not changed.
func hashFile(ctx context.Context, path string, old memoEntry) (memoEntry, error) {
	f, err := disk.Open(path)
	if err != nil {
		return memoEntry{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return memoEntry{}, err
	}
	e := memoEntry{Size: st.Size(), MTime: st.ModTime().UnixNano()}
	if old.Size == e.Size && old.MTime == e.MTime && digest.IsHex(old.SHA256) {
		return old, nil
	}
	h := digest.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, transfer.Cancellable(ctx, f), make([]byte, 1<<20))
	if err != nil {
		return memoEntry{}, err
	}
	if n != e.Size {
		return memoEntry{}, fmt.Errorf("changed while it was read: %w", fault.ErrCorrupt)
	}
	e.SHA256 = h.Hex()
	return e, nil
}

// drop removes a file and its blob from the cache and returns a sentence about it for the error; it is empty for a user's
// directory.
func (s *Snapshot) drop(f File) string {
	if s.Repo == "" || f.SHA256 == "" {
		return ""
	}
	repo := filepath.Dir(filepath.Dir(s.Dir))
	root, err := os.OpenRoot(repo)
	if err != nil {
		return "; remove it from the cache by hand: " + err.Error()
	}
	defer root.Close()
	entry := filepath.Join("snapshots", filepath.Base(s.Dir), filepath.FromSlash(f.Name))
	for _, path := range []string{filepath.Join("blobs", f.SHA256), entry} {
		if err := root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "; remove it from the cache by hand: " + err.Error()
		}
	}
	return "; it was removed from the cache, so the next run downloads it again"
}

// isGitBlob compares a file with git's hash of its content.
func isGitBlob(f io.Reader, size int64, name string) bool {
	h := transfer.Blob{Size: size}.Hash()
	n, err := io.Copy(h, io.LimitReader(f, size+1))
	return err == nil && n == size && hex.EncodeToString(h.Sum(nil)) == name
}

func loadMemo(ctx context.Context, path string) *memo {
	m := &memo{}
	if path != "" {
		b, err := disk.ReadFile(path, maxRecord)
		if err == nil {
			err = sealed.Unmarshal(memoName, b, m)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			zerolog.Ctx(ctx).Warn().Err(err).Str("file", path).Msg("the file of remembered digests is unreadable; reading the weights again")
		}
		if err != nil || m.Version != 1 {
			m = &memo{}
		}
	}
	m.Version = 1
	if m.Files == nil {
		m.Files = map[string]memoEntry{}
	}
	return m
}

// save forgets files that no longer exist, so that the memo does not grow without bound.
func (m *memo) save(path string) error {
	for p := range m.Files {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			delete(m.Files, p)
		}
	}
	b, err := sealed.Marshal(memoName, m)
	if err != nil {
		return err
	}
	return replaceFile(path, append(b, '\n'))
}
