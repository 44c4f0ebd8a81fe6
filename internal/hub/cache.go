package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/jsondoc"
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// maxRecord bounds the JSON files read from the cache, in bytes.
const maxRecord = 100_000_000

// symlink is replaced in tests that need a system without links.
var symlink = (*os.Root).Symlink

// cache is one repository's directory in the hub cache.
type cache struct {
	root, repo, dir string
	source          string
	noLinks         bool

	mu      sync.Mutex
	opened  *os.Root             // root; nil until needed
	fetched map[string]memoEntry // blobs whose digests were compared during download, by name
}

// newCache returns the cache of a repository. ModelScope's repositories are stored next to those of Hugging Face under a name of
// three parts, which no Hugging Face repository can have.
func newCache(o Options, repo string) *cache {
	folder := "models--"
	if o.Source != "" {
		folder += o.Source + "--"
	}
	folder += strings.ReplaceAll(repo, "/", "--")
	return &cache{root: o.CacheDir, repo: repo, dir: filepath.Join(o.CacheDir, folder), source: o.Source, noLinks: o.NoLinks,
		fetched: map[string]memoEntry{}}
}

// open returns the directory of the cache and creates it if create is set. Other programs may write to the cache too: no link
// followed through the returned root leads out of it.
func (c *cache) open(create bool) (*os.Root, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened != nil {
		return c.opened, nil
	}
	if create {
		if err := os.MkdirAll(c.root, 0o777); err != nil {
			return nil, err
		}
	}
	var err error
	c.opened, err = os.OpenRoot(c.root)
	return c.opened, err
}

// rel converts a path of the cache to one relative to the result of open.
func (c *cache) rel(path string) string {
	rel, err := filepath.Rel(c.root, path)
	if err != nil {
		return path // open's root rejects it
	}
	return rel
}

// read reads a file written by us or by another program; a link in its place is rejected.
func (c *cache) read(path string, limit int64) ([]byte, error) {
	root, err := c.open(false)
	if err != nil {
		return nil, err
	}
	return disk.ReadIn(root, c.rel(path), limit)
}

// create creates a file, and its directory, unless the name exists.
func (c *cache) create(path string, data []byte) error {
	if err := c.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := c.opened.OpenFile(c.rel(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return disk.Name(c.opened, err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// replace atomically replaces the file at path with the output of write.
func (c *cache) replace(path string, write func(io.Writer) error) error {
	tmp := c.temp(path)
	if err := errors.Join(c.makeDir(filepath.Dir(path)), c.makeDir(filepath.Dir(tmp))); err != nil {
		return err
	}
	return replaceIn(c.opened, c.rel(tmp), c.rel(path), write)
}

// makeDir creates a directory of the cache.
func (c *cache) makeDir(path string) error {
	root, err := c.open(true)
	if err != nil {
		return err
	}
	return disk.MakeDirIn(root, c.rel(path))
}

// check rejects a cache in which a directory, a ref or a note is of another kind: a link could lead out of the cache, and
// opening a named pipe blocks.
func (c *cache) check(revision string) error {
	locks := filepath.Dir(c.lockFile(""))
	dirs := []string{c.dir, filepath.Dir(locks), locks, c.own(), filepath.Join(c.dir, "trees")}
	for _, name := range []string{"blobs", "snapshots", "refs", ".no_exist"} {
		dirs = append(dirs, filepath.Join(c.dir, name))
	}
	for _, path := range dirs {
		if err := checkKind(path, fs.FileMode.IsDir, "directory"); err != nil {
			return err
		}
	}
	if isCommit(revision) {
		return c.checkNotes(revision)
	}
	for path := filepath.Dir(c.ref(revision)); len(path) > len(c.dir); path = filepath.Dir(path) {
		if err := checkKind(path, fs.FileMode.IsDir, "directory"); err != nil {
			return err
		}
	}
	return checkKind(c.ref(revision), fs.FileMode.IsRegular, "file")
}

// checkNotes is check for the notes about a commit.
func (c *cache) checkNotes(commit string) error {
	for _, path := range []string{c.snapshotDir(commit), filepath.Join(c.dir, ".no_exist", commit)} {
		if err := checkKind(path, fs.FileMode.IsDir, "directory"); err != nil {
			return err
		}
	}
	notes := []string{c.recordFile(commit), c.treeFile(commit), filepath.Join(c.root, "CACHEDIR.TAG")}
	for _, name := range fixedNames {
		notes = append(notes, c.absentFile(commit, name))
	}
	for _, path := range notes {
		if err := checkKind(path, fs.FileMode.IsRegular, "file"); err != nil {
			return err
		}
	}
	return nil
}

// checkKind rejects an existing path of another kind.
func checkKind(path string, is func(fs.FileMode) bool, want string) error {
	st, err := os.Lstat(path)
	if err != nil || is(st.Mode()) {
		return nil // opening it reports the error
	}
	return &disk.KindError{Path: path, Kind: disk.Kind(st.Mode()), Want: want}
}

// content opens a blob, or a file of a snapshot, for reading. It follows links only where they belong: from a snapshot to a blob
// of the repository, and from there to the store of blobs that repositories share.
func (c *cache) content(path string) (*os.File, error) {
	root, err := c.open(false)
	if err != nil {
		return nil, err
	}
	blobs := filepath.Join(c.dir, "blobs")
	for _, to := range []string{blobs, filepath.Join(c.root, "blobs")} {
		target, err := root.Readlink(c.rel(path))
		if err != nil {
			break
		}
		if target = filepath.FromSlash(target); !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		inside := filepath.Dir(target) == to || to != blobs && disk.Inside(to, target)
		if !inside && filepath.Dir(path) != blobs {
			return nil, fmt.Errorf("%s is a link to %s, which is not in %s", path, target, to)
		}
		if inside {
			path = target
		}
	}
	return disk.OpenIn(root, c.rel(path), os.O_RDONLY, 0)
}

// is compares a file with its size and, unless it holds weights, with its digest: other programs compare no digests, and the
// files that describe the weights are read before [HashFiles] is called. Weights are left to HashFiles, which remembers their
// digests.
func (c *cache) is(path string, f remote) bool {
	r, err := c.content(path)
	if err != nil {
		return false
	}
	defer r.Close()
	st, err := r.Stat()
	switch {
	case err != nil || st.Size() != f.Size:
		return false
	case isShard(f.Name):
		return true
	case f.SHA256 == "":
		return isGitBlob(r, f.Size, f.Blob)
	}
	h := digest.New()
	_, err = io.Copy(h, r)
	return err == nil && h.Hex() == f.SHA256
}

func (c *cache) blob(name string) string { return filepath.Join(c.dir, "blobs", name) }

func (c *cache) snapshotDir(commit string) string { return filepath.Join(c.dir, "snapshots", commit) }

func (c *cache) ref(revision string) string {
	return filepath.Join(c.dir, "refs", filepath.FromSlash(revision))
}

// own is the directory that only this program uses. Files that a kill may leave incomplete are written there.
func (c *cache) own() string { return filepath.Join(c.dir, ".llmexport") }

// temp names a temporary file there for path. os.CreateTemp would create one that other users of a shared cache cannot read.
func (c *cache) temp(path string) string {
	return filepath.Join(c.own(), fmt.Sprintf("%s.%016x.tmp", filepath.Base(path), rand.Uint64()))
}

func (c *cache) recordFile(commit string) string { return filepath.Join(c.own(), commit+".json") }

// has reports whether a snapshot has a file: the size matches, its link does not lead to the blob of another file, and the
// content matches as far as can be checked without reading gigabytes.
func (c *cache) has(commit string, f remote) bool {
	path := filepath.Join(c.snapshotDir(commit), filepath.FromSlash(f.Name))
	if to, err := os.Readlink(path); err == nil {
		to = filepath.Base(to)
		if to != f.Blob && (isCommit(to) || digest.IsHex(to)) {
			return false
		}
	}
	return c.is(path, f)
}

func isFile(path string, size int64) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Size() == size
}

func (c *cache) snapshot(l *listing) *Snapshot {
	s := &Snapshot{Dir: c.snapshotDir(l.commit), Repo: c.repo, Revision: l.commit, Source: c.source, Gated: l.gated, Private: l.private, Listed: l.listed,
		fetched: map[string]memoEntry{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range l.files {
		s.Files = append(s.Files, f.File)
		if e, ok := c.fetched[f.Blob]; ok {
			s.fetched[f.Name] = e
		}
	}
	return s
}

// record lists the files that make a snapshot complete, and the hub's facts about the repository.
type record struct {
	Version int      `json:"version"`
	Files   []remote `json:"files"`
	Gated   string   `json:"gated,omitempty"`
	Private bool     `json:"private,omitempty"`
	Listed  bool     `json:"listed,omitempty"`
}

// record notes which files make a snapshot complete: the directory alone does not show whether another program wanted fewer.
func (c *cache) record(l *listing) error {
	path := c.recordFile(l.commit)
	b, err := json.MarshalIndent(record{1, l.files, l.gated, l.private, l.listed}, "", " ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if old, err := c.read(path, maxRecord); err == nil && string(old) == string(b) {
		return nil
	}
	return c.replace(path, writing(b))
}

// recorded returns the files of a commit if its snapshot is known to be complete, and nil otherwise.
func (c *cache) recorded(commit string) *listing {
	b, err := c.read(c.recordFile(commit), maxRecord)
	if err != nil {
		return nil
	}
	var r record
	if jsondoc.Decode(b, &r) != nil || r.Version != 1 || len(r.Files) == 0 {
		return nil
	}
	for _, f := range r.Files {
		if f.check() != nil || !c.has(commit, f) {
			return nil
		}
	}
	return &listing{commit: commit, files: r.Files, gated: r.Gated, private: r.Private, listed: r.Listed}
}

// writeRef notes the commit of a branch or tag.
func (c *cache) writeRef(revision, commit string) error {
	path := c.ref(revision)
	if b, err := c.read(path, 1000); err == nil && string(b) == commit {
		return nil
	}
	return c.replace(path, writing([]byte(commit)))
}

// cacheTag is the text that huggingface_hub writes so that backup programs skip the cache.
const cacheTag = "Signature: 8a477f597d28d172789f06886806bc55\n" +
	"# This file is a cache directory tag created by huggingface_hub.\n" +
	"# For information about cache directory tags, see:\n" +
	"#\thttps://bford.info/cachedir/\n"

// tag marks the directory as a cache.
func (c *cache) tag() error {
	path := filepath.Join(c.root, "CACHEDIR.TAG")
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == 0 {
		return c.replace(path, writing([]byte(cacheTag)))
	}
	return c.create(path, []byte(cacheTag))
}

// noteAbsent notes, as huggingface_hub does, which of the files that programs look up by name the commit lacks, so that other
// programs need not ask.
func (c *cache) noteAbsent(l *listing) error {
	for _, name := range fixedNames {
		if l.names[name] || c.absent(l.commit, name) {
			continue
		}
		if err := c.create(c.absentFile(l.commit, name), nil); err != nil {
			return err
		}
	}
	return nil
}

// absent reports whether a note says that a commit lacks the file.
func (c *cache) absent(commit, name string) bool { return isFile(c.absentFile(commit, name), 0) }

func (c *cache) absentFile(commit, name string) string {
	return filepath.Join(c.dir, ".no_exist", commit, name)
}

// link makes a blob visible in a snapshot: by a relative link as huggingface_hub does, or by a hard link or a copy, for example
// on Windows without the right to create links.
func (c *cache) link(commit string, f remote) error {
	if c.has(commit, f) {
		return nil
	}
	blob, dst := c.blob(f.Blob), filepath.Join(c.snapshotDir(commit), filepath.FromSlash(f.Name))
	if err := c.makeDir(filepath.Dir(dst)); err != nil {
		return err
	}
	if err := c.opened.Remove(c.rel(dst)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	up := strings.Repeat("../", 2+strings.Count(f.Name, "/"))
	if !c.noLinks && symlink(c.opened, filepath.Join(up, "blobs", f.Blob), c.rel(dst)) == nil {
		return nil
	}
	if c.opened.Link(c.rel(blob), c.rel(dst)) == nil {
		return nil
	}
	if c.has(commit, f) { // another process was faster
		return nil
	}
	in, err := c.content(blob)
	if err != nil {
		return fmt.Errorf("the cache has lost a file: %w", err)
	}
	defer in.Close()
	return c.replace(dst, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}
