package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/fault"
	"github.com/llmexport/llmexport/internal/jsondoc"
)

// offline returns the cached snapshot of a revision: a recorded one, one that has all files on a list left by another program,
// or one that has the configuration and all weights.
func (c *cache) offline(revision string) (*Snapshot, error) {
	commit := revision
	if !isCommit(revision) {
		b, err := c.read(c.ref(revision), 1000)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, absentError(fmt.Sprintf("the revision is missing from the cache %s%s", c.root, onlineAdvice))
		}
		if err != nil {
			return nil, err
		}
		if commit = strings.TrimSpace(string(b)); !isCommit(commit) {
			return nil, fmt.Errorf("%s holds no commit: %w", c.ref(revision), fault.ErrCorrupt)
		}
	}
	if err := c.checkNotes(commit); err != nil {
		return nil, err
	}
	if l := c.recorded(commit); l != nil {
		return c.snapshot(l), nil
	}
	incomplete := func(missing string) error {
		return absentError(fmt.Sprintf("%s is missing from the cache %s, commit %s%s", missing, c.root, commit, onlineAdvice))
	}
	dir := c.snapshotDir(commit)
	if l := c.tree(commit); l != nil {
		// Without the index all shards are wanted, and the index itself is among the missing files below.
		files, missing, err := inIndex(dir, l.files)
		if err != nil {
			return nil, err
		}
		if missing != "" {
			return nil, notListed(missing)
		}
		l.files = files
		for _, f := range l.files {
			if !c.has(commit, f) {
				return nil, incomplete(f.Name)
			}
		}
		return c.snapshot(l), nil
	}
	missing, err := firstMissing(dir)
	if err != nil {
		return nil, err
	}
	if missing != "" && c.absent(commit, missing) && (missing != singleFile || c.absent(commit, indexFile)) {
		return nil, fmt.Errorf("commit %s holds no %s: %w", commit, missing, fault.ErrUnsupported)
	}
	if missing != "" {
		return nil, incomplete(missing)
	}
	files, err := listDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		r, err := c.content(filepath.Join(dir, filepath.FromSlash(f.Name)))
		if err != nil {
			return nil, err
		}
		r.Close()
	}
	return &Snapshot{Dir: dir, Repo: c.repo, Revision: commit, Source: c.source, Files: files}, nil
}

func (c *cache) treeFile(commit string) string { return filepath.Join(c.dir, "trees", commit+".json") }

// tree reads the list of a commit's files that huggingface_hub keeps in trees/, or returns nil. A commit never changes, so the
// list is as good as the hub's. This package writes none: the list would have to contain files that it does not download, and
// then huggingface_hub would consider the snapshot incomplete.
func (c *cache) tree(commit string) *listing {
	b, err := c.read(c.treeFile(commit), maxRecord)
	if err != nil {
		return nil
	}
	l, err := parseTree(commit, b)
	if err != nil {
		return nil
	}
	return l
}

func parseTree(commit string, b []byte) (*listing, error) {
	var tree struct {
		Version int `json:"format_version"`
		Files   map[string]struct {
			Size      *int64 `json:"size"`
			Blob      string `json:"blob_id"`
			LFSSHA256 string `json:"lfs_sha256"`
			LFSSize   *int64 `json:"lfs_size"`
		} `json:"files"`
	}
	if err := jsondoc.Decode(b, &tree); err != nil || tree.Version != 1 {
		return nil, fmt.Errorf("version %d: %w: %w", tree.Version, errors.Join(err), fault.ErrCorrupt)
	}
	names := slices.Sorted(maps.Keys(tree.Files))
	return newListing(commit, len(names), func(i int) (string, *int64, string, string) {
		f := tree.Files[names[i]]
		if f.LFSSHA256 != "" {
			return names[i], f.LFSSize, f.Blob, f.LFSSHA256
		}
		return names[i], f.Size, f.Blob, ""
	})
}

// firstMissing names a file without which dir is not a checkpoint; empty if there is none.
func firstMissing(dir string) (string, error) {
	exists := func(name string) bool {
		st, err := os.Stat(filepath.Join(dir, name))
		return err == nil && st.Mode().IsRegular()
	}
	if !exists("config.json") {
		return "config.json", nil
	}
	if exists(singleFile) {
		return "", nil
	}
	shards, err := readIndex(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return singleFile, nil
	}
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		if !exists(name) {
			return name, nil
		}
	}
	return "", nil
}
