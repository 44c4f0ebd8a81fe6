package fakehub

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// kinds are the kinds of repositories in addresses of the API. Models have no prefix elsewhere.
var kinds = []string{"models", "datasets"}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Repo is a repository with its history.
type Repo struct {
	h    *Hub
	key  string // kind and name
	kind string
	name string // without the kind

	mu      sync.RWMutex
	private bool
	gated   string // "", "auto" or "manual"
	created time.Time
	commits map[string]*commit
	refs    map[string]string // commits by full name: refs/heads/main, refs/tags/v1, refs/pr/1
}

// commit is a state of a repository.
type commit struct {
	id             string
	parent         string
	title, message string
	author         string
	date           time.Time
	files          map[string]*object
	trees          map[string]string // git's names of folders, "" is the root
}

func newRepo(h *Hub, key string) *Repo {
	kind, name, _ := strings.Cut(key, "/")
	return &Repo{h: h, key: key, kind: kind, name: name, created: h.clock, commits: map[string]*commit{}, refs: map[string]string{}}
}

// Name is the repository's name, without its kind.
func (r *Repo) Name() string { return r.name }

// SetPrivate makes the repository private or public.
func (r *Repo) SetPrivate(private bool) *Repo {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.private = private
	return r
}

// SetGated makes the repository gated: "auto" or "manual", or "" for open.
func (r *Repo) SetGated(how string) *Repo {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gated = how
	return r
}

// Settings returns the current settings.
func (r *Repo) Settings() (private bool, gated string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.private, r.gated
}

// Commit adds files to a branch, or removes those that are nil, and returns the commit's id. The branch is created if
// necessary. The rules for uploads decide whether a file is an LFS file. It panics on an invalid name.
func (r *Repo) Commit(branch string, files map[string][]byte) string {
	changes := make([]change, 0, len(files))
	for name, b := range files {
		c := change{path: name}
		if b != nil {
			c.object = memory(slices.Clone(b))
		}
		changes = append(changes, c)
	}
	id, err := r.add(branch, changes)
	if err != nil {
		panic(fmt.Sprintf("internal error: fakehub: %v", err))
	}
	return id
}

// CommitDisk is Commit for files on disk, which are not read into memory.
func (r *Repo) CommitDisk(branch string, files map[string]Disk) (string, error) {
	var changes []change
	for name, d := range files {
		o, err := d.object()
		if err != nil {
			return "", err
		}
		changes = append(changes, change{path: name, object: o})
	}
	return r.add(branch, changes)
}

// CommitDir is CommitDisk for all files of a folder. Digests, by name, are optional.
func (r *Repo) CommitDir(branch, dir string, sha256 map[string]string) (string, error) {
	files := map[string]Disk{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		files[name] = Disk{Path: path, SHA256: sha256[name]}
		return nil
	})
	if err != nil {
		return "", err
	}
	return r.CommitDisk(branch, files)
}

// add commits changes; the rules for uploads decide what is an LFS file.
func (r *Repo) add(branch string, changes []change) (string, error) {
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.path, b.path) })
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := "refs/heads/" + branch
	if strings.HasPrefix(branch, "refs/") {
		ref = branch
	}
	attributes := r.attributes(r.commits[r.refs[ref]])
	for i, c := range changes {
		if c.object == nil {
			continue
		}
		o, err := c.object.as(r.h.lfs(attributes, c.path, c.object.size))
		if err != nil {
			return "", err
		}
		changes[i].object = o
	}
	c, err := r.apply(ref, "tester", "Update files", "", changes)
	if err != nil {
		return "", err
	}
	return c.id, nil
}

// Branch creates a branch or moves it to a revision.
func (r *Repo) Branch(name, revision string) { r.setRef("refs/heads/"+name, revision) }

// Tag creates a tag or moves it to a revision.
func (r *Repo) Tag(name, revision string) { r.setRef("refs/tags/"+name, revision) }

// Ref creates or moves a reference with a full name, such as "refs/pr/1".
func (r *Repo) Ref(name, revision string) { r.setRef(name, revision) }

func (r *Repo) setRef(name, revision string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.resolve(revision)
	if c == nil {
		panic("internal error: fakehub: no revision " + revision)
	}
	r.refs[name] = c.id
}

// Head returns the commit id of a revision, or "".
func (r *Repo) Head(revision string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if c := r.resolve(revision); c != nil {
		return c.id
	}
	return ""
}

// Files returns the contents of a revision; nil if there is no such revision or a file cannot be read.
func (r *Repo) Files(revision string) map[string][]byte {
	c := r.at(revision)
	if c == nil {
		return nil
	}
	files := map[string][]byte{}
	for name, o := range c.files {
		b, err := o.bytes()
		if err != nil {
			return nil
		}
		files[name] = b
	}
	return files
}

// History returns the commits of a revision, latest first.
func (r *Repo) History(revision string) []string {
	var ids []string
	for _, c := range r.history(revision) {
		ids = append(ids, c.id)
	}
	return ids
}

func (r *Repo) history(revision string) []*commit {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var list []*commit
	for c := r.resolve(revision); c != nil; c = r.commits[c.parent] {
		list = append(list, c)
	}
	return list
}

// at is resolve for callers that do not hold the lock.
func (r *Repo) at(revision string) *commit {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.resolve(revision)
}

// resolve returns the commit of a branch, a tag, a full reference, or a possibly abbreviated commit id; or nil.
func (r *Repo) resolve(revision string) *commit {
	for _, ref := range []string{"refs/heads/" + revision, "refs/tags/" + revision, revision} {
		if c := r.commits[r.refs[ref]]; c != nil {
			return c
		}
	}
	if len(revision) < 7 {
		return nil
	}
	var found *commit
	for id, c := range r.commits {
		if strings.HasPrefix(id, revision) {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	return found
}

// change writes one file in a commit, or removes it if there is no object.
type change struct {
	path   string
	object *object
}

// apply makes a commit on top of a reference.
func (r *Repo) apply(ref, author, title, message string, changes []change) (*commit, error) {
	c := &commit{parent: r.refs[ref], title: title, message: message, author: author, files: map[string]*object{}}
	if p := r.commits[c.parent]; p != nil {
		c.files = maps.Clone(p.files)
	}
	for _, ch := range changes {
		if err := checkPath(ch.path); err != nil {
			return nil, err
		}
		if ch.object == nil {
			delete(c.files, ch.path)
			continue
		}
		c.files[ch.path] = ch.object
	}
	for name := range c.files {
		for i, b := range name {
			if b == '/' && c.files[name[:i]] != nil {
				return nil, fmt.Errorf("%q is a file and a folder", name[:i])
			}
		}
	}
	r.h.mu.Lock()
	c.date = r.h.clock
	r.h.clock = r.h.clock.Add(time.Second)
	r.h.mu.Unlock()
	for _, o := range c.files {
		if o.lfs {
			r.h.keep(o)
		}
	}
	c.trees = trees(c.files)
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", c.trees[""])
	if c.parent != "" {
		fmt.Fprintf(&b, "parent %s\n", c.parent)
	}
	for _, who := range []string{"author", "committer"} {
		fmt.Fprintf(&b, "%s %s <%s@users.noreply> %d +0000\n", who, author, author, c.date.Unix())
	}
	fmt.Fprintf(&b, "\n%s\n", title)
	if message != "" {
		fmt.Fprintf(&b, "\n%s\n", message)
	}
	c.id = gitID("commit", []byte(b.String()))
	r.commits[c.id] = c
	r.refs[ref] = c.id
	return c, nil
}
