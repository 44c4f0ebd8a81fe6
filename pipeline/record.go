package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/sealed"
)

// DoneFile is the file that makes a directory a finished entry: its [Record], sealed with the name of the entry.
const DoneFile = "done.json"

const (
	// maxRecord bounds the size of a record in bytes; that of 100,000 files has 10 MB.
	maxRecord = 256 << 20
	// maxSyncs is how many files are made durable at once: each occupies a thread of the system meanwhile.
	maxSyncs = 64
	// longRead is the least number of bytes whose reading shows progress.
	longRead = 256 << 20
)

// Record lists the content of an entry.
type Record struct {
	Digest digest.Digest  `json:"digest"`
	Files  []RecordedFile `json:"files"`
}

// RecordedFile is a regular file of an entry; Name has forward slashes.
type RecordedFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

const (
	// maxFiles bounds the files of an entry, maxEntry their bytes.
	maxFiles = 1 << 20
	maxEntry = 1 << 46
)

// Seal returns the text of a record for an entry of this name.
func (r *Record) Seal(name string) ([]byte, error) { return sealed.Marshal(name, r) }

// Size is the number of bytes of all files.
func (r *Record) Size() (n int64) {
	for _, f := range r.Files {
		n += f.Size
	}
	return n
}

// ParseRecord parses the text of [Record.Seal] for the same name. Anything else, names that lead out of the entry, and sizes that
// no entry has are fault.ErrCorrupt.
func ParseRecord(name string, text []byte) (*Record, error) {
	if len(text) > maxRecord {
		return nil, fmt.Errorf("the record has %d bytes, the limit is %d: %w", len(text), maxRecord, fault.ErrCorrupt)
	}
	r := &Record{}
	if err := sealed.Unmarshal(name, text, r); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, fault.ErrCorrupt)
	}
	return r, nil
}

func (r *Record) check() error {
	if len(r.Files) > maxFiles {
		return fmt.Errorf("the record lists %d files, the limit is %d", len(r.Files), maxFiles)
	}
	total, seen := int64(0), map[string]bool{}
	for _, f := range r.Files {
		if !fs.ValidPath(f.Name) || !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Name == "." || f.Name == DoneFile ||
			strings.ContainsFunc(f.Name, func(c rune) bool { return c < ' ' || c == 0x7f || strings.ContainsRune(`\:`, c) }) {
			return fmt.Errorf("the record lists %.200q, which is no file of an entry", f.Name)
		}
		if f.Size < 0 || f.Size > maxEntry || !digest.IsHex(f.SHA256) {
			return fmt.Errorf("the record lists %.200s with %d bytes and SHA-256 %.80q", f.Name, f.Size, f.SHA256)
		}
		if total += f.Size; total > maxEntry {
			return fmt.Errorf("the record lists more than %d bytes", int64(maxEntry))
		}
		if seen[f.Name] {
			return fmt.Errorf("the record lists %.200s twice", f.Name)
		}
		seen[f.Name] = true
	}
	for _, f := range r.Files {
		for dir := path.Dir(f.Name); dir != "."; dir = path.Dir(dir) {
			if seen[dir] {
				return fmt.Errorf("the record lists %.200s, which is a file, as a directory", dir)
			}
		}
	}
	return nil
}

// state identifies a file that was read, until it changes. On systems where files have no identity, path takes its place.
type state struct {
	id         disk.Identity
	path       string
	size, time int64
}

func stateOf(path string, info fs.FileInfo) state {
	id, _, ok := disk.IdentityOf(info)
	if ok {
		path = ""
	}
	return state{id, path, info.Size(), info.ModTime().UnixNano()}
}

// errAbsent means that an entry does not exist.
var errAbsent = errors.New("no such entry")

// damageError lists the files of an entry that differ from its record.
type damageError struct {
	files []string
	ids   []disk.Identity
}

func (e *damageError) Error() string {
	const most = 3
	list := strings.Join(e.files[:min(most, len(e.files))], ", ")
	if n := len(e.files) - most; n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	return list
}

func (e *damageError) add(why string, name string, info fs.FileInfo) {
	e.files = append(e.files, name+" "+why)
	if info == nil {
		return
	}
	if id, _, ok := disk.IdentityOf(info); ok {
		e.ids = append(e.ids, id)
	}
}

// find returns a finished entry, whose files all agree with its record; errAbsent if there is none.
func (s *Directory) find(ctx context.Context, l *Limits, stage, name string) (Artifact, error) {
	dir := filepath.Join(s.dir, name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) || !s.use(name) {
		return Artifact{}, errAbsent
	}
	rec, _, err := s.check(ctx, l, stage, name, dir)
	if err != nil {
		return Artifact{}, err
	}
	// The time of last use determines what Collect removes.
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, DoneFile), now, now)
	zerolog.Ctx(ctx).Info().Msg("nothing to do: same inputs, options and program as before")
	return Artifact{Name: name, Path: dir, Digest: rec.Digest, From: Cached}, nil
}

// check compares the files of an entry, which is in dir, with its record.
func (s *Directory) check(ctx context.Context, l *Limits, stage, name, dir string) (*Record, []entryFile, error) {
	rec, err := readRecord(name, dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", DoneFile, err)
	}
	files, err := listEntry(dir)
	if err != nil {
		return nil, nil, err
	}
	var same []entryFile // those of the right size
	damage, want := &damageError{}, map[string]RecordedFile{}
	for _, f := range rec.Files {
		want[f.Name] = f
	}
	for _, f := range files {
		w, ok := want[f.name]
		delete(want, f.name)
		switch {
		case !ok:
			damage.add("does not belong to the entry", f.name, f.info)
		case f.info.Size() != w.Size:
			damage.add(fmt.Sprintf("has %d bytes instead of %d", f.info.Size(), w.Size), f.name, f.info)
		default:
			f.want = w.SHA256
			same = append(same, f)
		}
	}
	for _, f := range rec.Files {
		if _, ok := want[f.Name]; ok {
			damage.add("is missing", f.Name, nil)
		}
	}
	if err := s.digest(ctx, l, stage, same); err != nil {
		return nil, nil, err
	}
	for _, f := range same {
		if f.sum != f.want {
			damage.add("has different content", f.name, f.info)
		}
	}
	if len(damage.files) > 0 {
		return nil, nil, damage
	}
	return rec, same, nil
}

// readRecord reads the record of the entry in dir.
func readRecord(name, dir string) (*Record, error) {
	b, err := disk.ReadFile(filepath.Join(dir, DoneFile), maxRecord)
	if err != nil {
		return nil, err
	}
	return ParseRecord(name, b)
}

// entryFile is a regular file of an entry on disk.
type entryFile struct {
	name, path string
	info       fs.FileInfo
	want, sum  string // SHA-256, as recorded and as it is; sum is empty if the file cannot be read
}

// listEntry lists the files of the entry in dir except its record. Links, special files and empty directories, none of which an
// entry has, are damage.
func listEntry(dir string) ([]entryFile, error) {
	var files []entryFile
	damage := &damageError{}
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		info, err := e.Info()
		switch {
		case err != nil:
			return err
		case e.IsDir():
			inside, err := os.ReadDir(at)
			if len(inside) == 0 && name != "." {
				damage.add("is an empty directory", name, nil)
			}
			return err
		case !info.Mode().IsRegular():
			damage.add("is not a regular file", name, nil)
		case name != DoneFile:
			files = append(files, entryFile{name: name, path: at, info: info})
		}
		return nil
	})
	if err == nil && len(damage.files) > 0 {
		err = damage
	}
	return files, err
}

// digest fills in the SHA-256 of files, reading those that this run has neither written nor read, several at once. It stays
// empty for a file that cannot be read.
func (s *Directory) digest(ctx context.Context, l *Limits, stage string, files []entryFile) error {
	var unread []*entryFile
	var total int64
	s.mu.Lock()
	for i := range files {
		f := &files[i]
		if f.sum = s.sums[stateOf(f.path, f.info)]; f.sum == "" {
			unread = append(unread, f)
			total += f.info.Size()
		}
	}
	s.mu.Unlock()
	var done atomic.Int64
	report := func(n int) {
		if d := done.Add(int64(n)); total >= longRead {
			l.Report("cache", "checking "+stage, d, total)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, l.Threads))
	for _, f := range unread {
		g.Go(func() error {
			sum, err := sumOf(ctx, *f, report)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				return nil // the file is damaged
			}
			f.sum = sum
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sums[stateOf(f.path, f.info)] = sum
			return nil
		})
	}
	return g.Wait()
}

// sumOf returns the SHA-256 of a file in hex, and passes the number of bytes in each read to report.
func sumOf(ctx context.Context, file entryFile, report func(n int)) (string, error) {
	f, err := os.Open(file.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, buf := digest.New(), make([]byte, min(file.info.Size()+1, 1<<20))
	for ctx.Err() == nil {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		report(n)
		if err == io.EOF {
			return h.Hex(), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", context.Cause(ctx)
}

// finish records the files of a complete entry, and makes the files, their names and the record durable.
func (s *Directory) finish(ctx context.Context, l *Limits, stage string, p *Partial, digest digest.Digest) error {
	files, err := listEntry(p.Dir)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	s.mu.Lock()
	for _, f := range files {
		if sum := p.sums[f.name]; sum != "" {
			s.sums[stateOf(f.path, f.info)] = sum
		}
	}
	s.mu.Unlock()
	if err := s.digest(ctx, l, stage, files); err != nil {
		return err
	}
	rec := &Record{Digest: digest}
	for _, f := range files {
		if f.sum == "" {
			return fmt.Errorf("%s cannot be read back", f.path)
		}
		rec.Files = append(rec.Files, RecordedFile{Name: f.name, Size: f.info.Size(), SHA256: f.sum})
	}
	if err := syncFiles(p.Dir, files); err != nil {
		return err
	}
	b, err := rec.Seal(p.Name)
	if err == nil {
		err = WriteFile(filepath.Join(p.Dir, DoneFile), b)
	}
	return errors.Join(err, disk.SyncDir(p.Dir))
}

// syncFiles makes the files of an entry in dir durable, many at once because file systems combine such requests, and then their
// names.
func syncFiles(dir string, files []entryFile) error {
	dirs := map[string]bool{dir: true}
	var g errgroup.Group
	g.SetLimit(maxSyncs)
	for _, e := range files {
		dirs[filepath.Dir(e.path)] = true
		g.Go(func() error {
			f, err := os.OpenFile(e.path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			return errors.Join(f.Sync(), f.Close())
		})
	}
	err := g.Wait()
	for dir := range dirs {
		err = errors.Join(err, disk.SyncDir(dir))
	}
	return err
}

// discard removes an entry, which is locked, because of err of find, and the entries that share a damaged file with it, unless
// they are in use. It returns the names of the entries it removed.
func (s *Directory) discard(name string, why error) (gone []string, err error) {
	var ids []disk.Identity
	if d := (*damageError)(nil); errors.As(why, &d) {
		ids = d.ids
	}
	items, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range items {
		dir, removed := filepath.Join(s.dir, e.Name()), false
		if e.Name() == name {
			s.disuse(name)
			removed, err = true, os.RemoveAll(dir)
		} else if e.IsDir() && holds(dir, ids) {
			removed, err = s.remove(e.Name())
		}
		if err != nil {
			return gone, err
		}
		if removed {
			gone = append(gone, e.Name())
		}
	}
	return gone, nil
}

// holds reports whether dir contains any of the files.
func holds(dir string, ids []disk.Identity) (found bool) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // unreadable directories are not known to share anything
		}
		if info, err := e.Info(); err == nil {
			if id, _, ok := disk.IdentityOf(info); ok && slices.Contains(ids, id) {
				found = true
				return fs.SkipAll
			}
		}
		return nil
	})
	return found
}
