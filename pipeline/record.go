package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

	"golang.org/x/sync/errgroup"

	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// doneFile makes a directory a finished entry: a sealed [record] about the name of the entry.
const doneFile = "done.json"

const (
	// maxRecord bounds it, in bytes; an entry of 100,000 files has some 10 MB.
	maxRecord = 256 << 20
	// maxSyncs is how many files are made durable at once: each takes a thread of the system while the disk is at work.
	maxSyncs = 64
	// longRead is how many bytes take long enough to show progress.
	longRead = 256 << 20
)

// record is what an entry holds.
type record struct {
	Digest manifest.Digest `json:"digest"`
	Files  []recordedFile  `json:"files"`
}

// recordedFile is a regular file of an entry; Name has forward slashes.
type recordedFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// state tells whether a file is the one that was read before. Where the system has no identities of files, path stands in.
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

// errAbsent says that there is no such entry.
var errAbsent = errors.New("no such entry")

// damageError says which files of an entry differ from its record.
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

// find returns a finished entry all of whose files are as they were written; errAbsent if there is none.
func (s *Store) find(ctx context.Context, l *Limits, stage, name string) (Artifact, error) {
	dir := filepath.Join(s.Dir, name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return Artifact{}, errAbsent
	}
	rec, err := readRecord(dir, name)
	if err != nil {
		return Artifact{}, fmt.Errorf("%s: %w", doneFile, err)
	}
	files, err := listEntry(dir)
	if err != nil {
		return Artifact{}, err
	}
	damage := &damageError{}
	var same []entryFile // in their sizes
	want := map[string]recordedFile{}
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
		return Artifact{}, err
	}
	for _, f := range same {
		if f.sum != f.want {
			damage.add("has other content", f.name, f.info)
		}
	}
	if len(damage.files) > 0 {
		return Artifact{}, damage
	}
	// The time of last use orders what gc removes.
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, doneFile), now, now)
	return Artifact{Name: name, Path: dir, Digest: rec.Digest}, nil
}

// readRecord reads the record of the entry in dir.
func readRecord(dir, name string) (*record, error) {
	path := filepath.Join(dir, doneFile)
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxRecord {
		return nil, fmt.Errorf("not a record: %w", tensor.ErrCorrupt)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rec := &record{}
	return rec, sealed.Unmarshal(name, b, rec)
}

// entryFile is a regular file of an entry.
type entryFile struct {
	name, path string
	info       fs.FileInfo
	want, sum  string // SHA-256, as recorded and as it is; sum is empty if the file cannot be read
}

// listEntry lists the files of the entry in dir but for its record. Links, special files and empty directories, none of
// which an entry has, are damage.
func listEntry(dir string) ([]entryFile, error) {
	var files []entryFile
	var dirs []string
	damage := &damageError{}
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		info, err := e.Info()
		switch {
		case err != nil:
			return err
		case name == doneFile:
		case e.IsDir():
			dirs = append(dirs, name)
		case !info.Mode().IsRegular():
			damage.add("is not a regular file", name, nil)
		default:
			files = append(files, entryFile{name: name, path: at, info: info})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{".": true}
	for _, f := range files {
		for d := path.Dir(f.name); !used[d]; d = path.Dir(d) {
			used[d] = true
		}
	}
	for _, d := range dirs {
		if !used[d] {
			damage.add("is an empty directory", d, nil)
		}
	}
	if len(damage.files) > 0 {
		return nil, damage
	}
	return files, nil
}

// digest computes the SHA-256 of files that this run has neither written nor read, several at once. A file that cannot be
// read has none.
func (s *Store) digest(ctx context.Context, l *Limits, stage string, files []entryFile) error {
	read := map[state][]int{} // names of one file are read once
	var total int64
	s.mu.Lock()
	for i := range files {
		f := &files[i]
		key := stateOf(f.path, f.info)
		if f.sum = s.sums[key]; f.sum != "" {
			continue
		}
		if read[key] == nil {
			total += f.info.Size()
		}
		read[key] = append(read[key], i)
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
	for key, same := range read {
		g.Go(func() error {
			sum, err := sumOf(ctx, files[same[0]], report)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				return nil // as damaged as one with other content
			}
			for _, i := range same {
				files[i].sum = sum
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sums[key] = sum
			return nil
		})
	}
	return g.Wait()
}

// sumOf returns the SHA-256 of a file in hex; report is told how many bytes were read.
func sumOf(ctx context.Context, file entryFile, report func(n int)) (string, error) {
	f, err := os.Open(file.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, buf := sha256.New(), make([]byte, min(file.info.Size()+1, 1<<20))
	for ctx.Err() == nil {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		report(n)
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", context.Cause(ctx)
}

// finish records the files of an entry that is complete, and makes it durable: files, their names, and the record.
func (s *Store) finish(ctx context.Context, l *Limits, stage string, p *Partial, digest manifest.Digest) error {
	files, err := listEntry(p.Dir)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	dirs := map[string]bool{p.Dir: true}
	s.mu.Lock()
	for _, f := range files {
		dirs[filepath.Dir(f.path)] = true
		if sum := p.sums[f.name]; sum != "" {
			s.sums[stateOf(f.path, f.info)] = sum
		}
	}
	s.mu.Unlock()
	if err := s.digest(ctx, l, stage, files); err != nil {
		return err
	}
	rec := record{Digest: digest}
	for _, f := range files {
		if f.sum == "" {
			return fmt.Errorf("%s cannot be read back", f.path)
		}
		rec.Files = append(rec.Files, recordedFile{Name: f.name, Size: f.info.Size(), SHA256: f.sum})
	}
	if err := syncFiles(files, dirs); err != nil {
		return err
	}
	b, err := sealed.Marshal(p.Name, rec)
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(p.Dir, doneFile), b); err != nil {
		return err
	}
	return disk.SyncDir(p.Dir)
}

// syncFiles makes files durable, many at once, as the file system joins what it has to do for them, and then their names.
func syncFiles(files []entryFile, dirs map[string]bool) error {
	var g errgroup.Group
	g.SetLimit(maxSyncs)
	for _, e := range files {
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

// discard removes an entry for what find says of it, and every entry that shares a damaged file with it. It returns the
// names of what is removed.
func (s *Store) discard(name string, why error) (gone []string, err error) {
	var ids []disk.Identity
	if d := (*damageError)(nil); errors.As(why, &d) {
		ids = d.ids
	}
	items, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range items {
		dir := filepath.Join(s.Dir, e.Name())
		if e.Name() != name && !(e.IsDir() && holds(dir, ids)) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return gone, err
		}
		gone = append(gone, e.Name())
	}
	return gone, nil
}

// holds reports whether one of the files is below dir.
func holds(dir string, ids []disk.Identity) (found bool) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // what cannot be looked at is not known to be shared
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
