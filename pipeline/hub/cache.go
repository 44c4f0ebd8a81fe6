package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmexport/llmexport/runtime/tensor"
)

const indexFile = "model.safetensors.index.json"

// maxRecord bounds the JSON files that are read from the cache, in bytes.
const maxRecord = 100_000_000

// symlink is replaced where a test needs a system without links.
var symlink = os.Symlink

// cache is one repository's directory in the hub cache.
type cache struct {
	root, repo, dir string
}

func newCache(root, repo string) *cache {
	return &cache{root, repo, filepath.Join(root, folder(repo))}
}

func folder(repo string) string { return "models--" + strings.ReplaceAll(repo, "/", "--") }

func (c *cache) blob(name string) string { return filepath.Join(c.dir, "blobs", name) }

func (c *cache) lock(blob string) string {
	return filepath.Join(c.root, ".locks", folder(c.repo), blob+".lock")
}

func (c *cache) snapshotDir(commit string) string { return filepath.Join(c.dir, "snapshots", commit) }

func (c *cache) ref(revision string) string {
	return filepath.Join(c.dir, "refs", filepath.FromSlash(revision))
}

func (c *cache) recordFile(commit string) string {
	return filepath.Join(c.dir, ".llmexport", commit+".json")
}

// has reports whether a snapshot has a file of the right size. The digest was checked before the blob
// got its name.
func (c *cache) has(commit string, f remote) bool {
	return isFile(filepath.Join(c.snapshotDir(commit), f.Name), f.Size)
}

func isFile(path string, size int64) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Size() == size
}

func (c *cache) snapshot(commit string, files []remote) *Snapshot {
	s := &Snapshot{Dir: c.snapshotDir(commit), Repo: c.repo, Revision: commit}
	for _, f := range files {
		s.Files = append(s.Files, f.File)
	}
	return s
}

// record notes which files make a snapshot complete: a directory alone does not tell whether
// another program wanted fewer.
func (c *cache) record(l *listing) error {
	path := c.recordFile(l.commit)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	b, err := json.MarshalIndent(l.files, "", " ")
	if err != nil {
		return err
	}
	return replaceFile(path, append(b, '\n'))
}

// recorded gives the snapshot of a commit if it is known to be complete, and nil otherwise.
func (c *cache) recorded(commit string) *Snapshot {
	b, err := readFile(c.recordFile(commit), maxRecord)
	if err != nil {
		return nil
	}
	var files []remote
	if json.Unmarshal(b, &files) != nil || len(files) == 0 {
		return nil
	}
	for _, f := range files {
		if f.check() != nil || !c.has(commit, f) {
			return nil
		}
	}
	return c.snapshot(commit, files)
}

// offline gives the snapshot that the cache holds of a revision: a recorded one, or one by another
// program that has the configuration and all weights.
func (c *cache) offline(revision string) (*Snapshot, error) {
	commit := revision
	if !isCommit(revision) {
		b, err := readFile(c.ref(revision), 1000)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the revision is not in the cache %s: fetch it once while online: %w", c.root, err)
		}
		if err != nil {
			return nil, err
		}
		if commit = strings.TrimSpace(string(b)); !isCommit(commit) {
			return nil, fmt.Errorf("%s holds no commit: %w", c.ref(revision), tensor.ErrCorrupt)
		}
	}
	if s := c.recorded(commit); s != nil {
		return s, nil
	}
	dir := c.snapshotDir(commit)
	missing, err := firstMissing(dir)
	if err != nil {
		return nil, err
	}
	if missing != "" {
		return nil, fmt.Errorf("commit %s is not complete in the cache %s, %s is missing: fetch it once while online: %w",
			commit, c.root, missing, fs.ErrNotExist)
	}
	files, err := listDir(dir)
	if err != nil {
		return nil, err
	}
	return &Snapshot{Dir: dir, Repo: c.repo, Revision: commit, Files: files}, nil
}

// firstMissing names a file without which dir is no checkpoint; empty if there is none.
func firstMissing(dir string) (string, error) {
	exists := func(name string) bool {
		st, err := os.Stat(filepath.Join(dir, name))
		return err == nil && st.Mode().IsRegular()
	}
	if !exists("config.json") {
		return "config.json", nil
	}
	if exists("model.safetensors") {
		return "", nil
	}
	b, err := readFile(filepath.Join(dir, indexFile), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return "model.safetensors", nil
	}
	if err != nil {
		return "", err
	}
	var index struct {
		Shards map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return "", fmt.Errorf("%s: %w: %w", indexFile, err, tensor.ErrCorrupt)
	}
	first := ""
	for _, shard := range index.Shards {
		if !safePath(shard) {
			return "", fmt.Errorf("%s: shard %.200q: %w", indexFile, shard, tensor.ErrCorrupt)
		}
		if (first == "" || shard < first) && !exists(shard) {
			first = shard
		}
	}
	return first, nil
}

// writeRef notes the commit of a branch or tag.
func (c *cache) writeRef(revision, commit string) error {
	path := c.ref(revision)
	if b, err := readFile(path, 1000); err == nil && string(b) == commit {
		return nil
	}
	return replaceFile(path, []byte(commit))
}

// link makes a blob visible in a snapshot: by a relative link as huggingface_hub does, or else, as on
// Windows without the right to make one, by a hard link or a copy.
func (c *cache) link(commit string, f remote) error {
	blob, dst := c.blob(f.Blob), filepath.Join(c.snapshotDir(commit), f.Name)
	if isFile(dst, f.Size) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
		return err
	}
	if err := os.Remove(dst); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	up := strings.Repeat("../", 2+strings.Count(f.Name, "/"))
	if symlink(filepath.Join(up, "blobs", f.Blob), dst) == nil || os.Link(blob, dst) == nil {
		return nil
	}
	if isFile(dst, f.Size) { // another process was faster
		return nil
	}
	in, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer in.Close()
	return replaceWith(dst, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}
