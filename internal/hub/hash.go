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

// racy is how old a file must be before its digest is remembered: a clock may be too coarse to show a
// second change soon after the first.
const racy = 2 * time.Second

// memoName is what a memo is sealed about, see [sealed.Marshal].
const memoName = "digests"

// memo remembers the digest of a file for as long as its size and time of change stay the same.
type memo struct {
	Version int                  `json:"version"`
	Files   map[string]memoEntry `json:"files"` // by absolute path, links resolved
}

type memoEntry struct {
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime_ns"`
	SHA256 string `json:"sha256"`
}

// HashFiles gives the files of s with the SHA-256 of what is on disk. A digest that the hub gave and
// the disk does not have is fault.ErrCorrupt, and so is another size. Digests of weights are remembered in
// cacheFile by path, size and time of change, so that a second run does not read them; with an empty
// cacheFile they are not. That does not show that the disk still has those bytes, see [Snapshot.Reread]. A cacheFile that is
// damaged counts as empty. What [Resolve] has just fetched into the cache was
// hashed as it came, and is read again only if it was changed since then. A file of the cache that turns out to be wrong is
// taken out of it, so that the next Resolve fetches it.
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

// Reread reads the files whose digests the last [HashFiles] remembered from an earlier process, and compares them: neither
// size nor time tells of bits that a disk has lost. A file that differs is fault.ErrCorrupt, and is taken out of the cache
// as HashFiles does. What was read once is not read again.
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

// hashFile gives the entry of the file at path; old is right if size and time have not changed.
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

// drop takes a file and the blob that it should be out of the cache, and gives what is to be said of that; nothing for a directory of the
// user's.
func (s *Snapshot) drop(f File) string {
	if s.Repo == "" || f.SHA256 == "" {
		return ""
	}
	repo := filepath.Dir(filepath.Dir(s.Dir))
	root, err := os.OpenRoot(repo)
	if err != nil {
		return "; it has to be removed from the cache: " + err.Error()
	}
	defer root.Close()
	entry := filepath.Join("snapshots", filepath.Base(s.Dir), filepath.FromSlash(f.Name))
	for _, path := range []string{filepath.Join("blobs", f.SHA256), entry} {
		if err := root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "; it has to be removed from the cache: " + err.Error()
		}
	}
	return "; it is removed from the cache, so that the next run fetches it"
}

// isGitBlob compares a file with git's name of its content.
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
			zerolog.Ctx(ctx).Warn().Err(err).Str("file", path).Msg("remembered digests are unreadable, files are read again")
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

// save forgets files that are gone, so that the memo does not grow for ever.
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
