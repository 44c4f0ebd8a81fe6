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
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// maxRecord bounds the JSON files that are read from the cache, in bytes.
const maxRecord = 100_000_000

// symlink is replaced where a test needs a system without links.
var symlink = os.Symlink

// cache is one repository's directory in the hub cache.
type cache struct {
	root, repo, dir string
	source          string
	noLinks         bool

	mu      sync.Mutex
	fetched map[string]memoEntry // blobs that were compared with their digests as they came, by name
}

// newCache gives the directory of a repository. ModelScope's lie beside those of Hugging Face under a name of three
// parts, which no repository there can have.
func newCache(o Options, repo string) *cache {
	folder := "models--"
	if o.Source != "" {
		folder += o.Source + "--"
	}
	folder += strings.ReplaceAll(repo, "/", "--")
	return &cache{root: o.CacheDir, repo: repo, dir: filepath.Join(o.CacheDir, folder), source: o.Source, noLinks: o.NoLinks,
		fetched: map[string]memoEntry{}}
}

func (c *cache) blob(name string) string { return filepath.Join(c.dir, "blobs", name) }

func (c *cache) snapshotDir(commit string) string { return filepath.Join(c.dir, "snapshots", commit) }

func (c *cache) ref(revision string) string {
	return filepath.Join(c.dir, "refs", filepath.FromSlash(revision))
}

// own is the directory that no other program knows. What a kill may leave half written is written there.
func (c *cache) own() string { return filepath.Join(c.dir, ".llmexport") }

// temp names a file there for what becomes path. os.CreateTemp would make one that no other user of a shared cache can read.
func (c *cache) temp(path string) string {
	return filepath.Join(c.own(), fmt.Sprintf("%s.%016x.tmp", filepath.Base(path), rand.Uint64()))
}

func (c *cache) recordFile(commit string) string { return filepath.Join(c.own(), commit+".json") }

// has reports whether a snapshot has a file: it has the size, its link does not lead to the blob of another file, and it
// is the content as far as that is known without reading gigabytes.
func (c *cache) has(commit string, f remote) bool {
	path := filepath.Join(c.snapshotDir(commit), filepath.FromSlash(f.Name))
	if to, err := os.Readlink(path); err == nil {
		to = filepath.Base(to)
		if to != f.Blob && (isCommit(to) || sha256Pattern.MatchString(to)) {
			return false
		}
	}
	return f.is(path)
}

// is compares a file with the size and, if it is a small one, with the digest: other programs compare no digests. The
// large ones are left to [HashFiles], which remembers what it has read.
func (f remote) is(path string) bool {
	return isFile(path, f.Size) && (f.SHA256 != "" || isGitBlob(path, f.Size, f.Blob))
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

// record is what makes a snapshot complete, and what the hub said of the repository.
type record struct {
	Version int      `json:"version"`
	Files   []remote `json:"files"`
	Gated   string   `json:"gated,omitempty"`
	Private bool     `json:"private,omitempty"`
	Listed  bool     `json:"listed,omitempty"`
}

// record notes which files make a snapshot complete: a directory alone does not tell whether
// another program wanted fewer.
func (c *cache) record(l *listing) error {
	path := c.recordFile(l.commit)
	b, err := json.MarshalIndent(record{1, l.files, l.gated, l.private, l.listed}, "", " ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if old, err := readFile(path, maxRecord); err == nil && string(old) == string(b) {
		return nil
	}
	return replaceFrom(c.temp(path), path, b)
}

// recorded gives the files of a commit if its snapshot is known to be complete, and nil otherwise.
func (c *cache) recorded(commit string) *listing {
	b, err := readFile(c.recordFile(commit), maxRecord)
	if err != nil {
		return nil
	}
	var r record
	if json.Unmarshal(b, &r) != nil || r.Version != 1 || len(r.Files) == 0 {
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
	if b, err := readFile(path, 1000); err == nil && string(b) == commit {
		return nil
	}
	return replaceFrom(c.temp(path), path, []byte(commit))
}

// cacheTag is what huggingface_hub writes, so that programs for backups leave the cache out.
const cacheTag = "Signature: 8a477f597d28d172789f06886806bc55\n" +
	"# This file is a cache directory tag created by huggingface_hub.\n" +
	"# For information about cache directory tags, see:\n" +
	"#\thttps://bford.info/cachedir/\n"

// tag marks the cache as one.
func (c *cache) tag() error {
	path := filepath.Join(c.root, "CACHEDIR.TAG")
	if st, err := os.Lstat(path); err == nil && st.Size() > 0 {
		return nil
	}
	return os.WriteFile(path, []byte(cacheTag), 0o666)
}

// noteAbsent notes, as huggingface_hub does, which files the commit does not have of those that are looked for by
// their names, so that other programs need not ask.
func (c *cache) noteAbsent(l *listing) error {
	for _, name := range fixedNames {
		if l.names[name] || c.absent(l.commit, name) {
			continue
		}
		path := c.absentFile(l.commit, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// absent reports whether it is noted that a commit has no such file.
func (c *cache) absent(commit, name string) bool { return isFile(c.absentFile(commit, name), 0) }

func (c *cache) absentFile(commit, name string) string {
	return filepath.Join(c.dir, ".no_exist", commit, name)
}

// link makes a blob visible in a snapshot: by a relative link as huggingface_hub does, or else, as on
// Windows without the right to make one, by a hard link or a copy.
func (c *cache) link(commit string, f remote) error {
	if c.has(commit, f) {
		return nil
	}
	blob, dst := c.blob(f.Blob), filepath.Join(c.snapshotDir(commit), filepath.FromSlash(f.Name))
	if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
		return err
	}
	if err := os.Remove(dst); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	up := strings.Repeat("../", 2+strings.Count(f.Name, "/"))
	if !c.noLinks && symlink(filepath.Join(up, "blobs", f.Blob), dst) == nil || os.Link(blob, dst) == nil {
		return nil
	}
	if c.has(commit, f) { // another process was faster
		return nil
	}
	in, err := os.Open(blob)
	if err != nil {
		return fmt.Errorf("the cache has lost a file: %w", err)
	}
	defer in.Close()
	return replaceWith(c.temp(dst), dst, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}
