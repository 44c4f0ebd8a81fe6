// Package hubs publishes packages to repositories of Hugging Face and of ModelScope, and opens packages there. Both use
// git repositories with separate storage for large files (LFS); only the protocols differ.
package hubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

const (
	mainBranch = "main"
	cardFile   = "README.md"
)

// HuggingFace publishes to a repository of Hugging Face, or of a hub with the same protocol.
//
// Stage creates the repository if it does not exist and uploads large files to storage, where they are invisible.
// Commit makes one commit on top of the state that Stage read: if somebody else has committed in between, nothing is
// shown. The repository contains the package and the files that the hub adds; a repository with other files is left
// alone.
type HuggingFace struct {
	// Repo is "org/name".
	Repo string
	// Private makes a new repository private. For one that is already public it is an error.
	Private bool
	// Gated makes readers accept terms: "auto" or "manual"; empty leaves the repository as it is.
	Gated string
	// Branch is the branch to commit to; empty is "main". A new branch starts at main.
	Branch string
	// Tag names the commit; may be empty. An existing tag is never moved.
	Tag string
	// Endpoint must be that of the environment, whose token is used; empty accepts any.
	Endpoint string
	// Message is the title of the commit; empty names the package.
	Message string
	// Options hold the address of the hub and the credentials; nil is hub.OptionsFromEnv.
	Options *hub.Options
	// Transfer sets retries and timeouts of requests.
	Transfer transfer.Options
}

// String names the repository, and the branch unless it is the default one.
func (h HuggingFace) String() string {
	if h.Branch != "" && h.Branch != mainBranch {
		return "hub " + h.Repo + "@" + h.Branch
	}
	return "hub " + h.Repo
}

// Public reports whether everybody may read the repository, or request access to it.
func (h HuggingFace) Public() bool { return !h.Private }

// Check rejects invalid options.
func (h HuggingFace) Check() error {
	err := hub.CheckRepo(h.Repo)
	if err == nil && !strings.Contains(h.Repo, "/") {
		err = fmt.Errorf("repository %q does not have the form org/name", h.Repo)
	}
	for _, name := range []string{h.Branch, h.Tag} {
		if err == nil && name != "" {
			err = hub.CheckRevision(name)
		}
		if err == nil && gitID.MatchString(name) {
			err = fmt.Errorf("%s looks like a commit, not the name of a branch or tag", name)
		}
	}
	if err == nil && h.Gated != "" && h.Gated != "auto" && h.Gated != "manual" {
		err = fmt.Errorf("gated: %.40q is neither auto nor manual", h.Gated)
	}
	return err
}

func (h HuggingFace) branch() string { return cmp.Or(h.Branch, mainBranch) }

// connect returns the client. A recipe is untrusted: it cannot choose where the token is sent.
func (h HuggingFace) connect() (*huggingFaceAPI, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	var o hub.Options
	if h.Options != nil {
		o = *h.Options
	} else {
		var err error
		if o, err = hub.OptionsFromEnv(); err != nil {
			return nil, err
		}
	}
	have := strings.TrimRight(cmp.Or(o.Endpoint, hub.DefaultEndpoint), "/")
	if want := strings.TrimRight(h.Endpoint, "/"); want != "" && want != have {
		return nil, fmt.Errorf("the endpoint is not %s, which the token is for; set HF_ENDPOINT", have)
	}
	return newHuggingFaceAPI(o, h.Repo, h.Transfer)
}

// repoState is the contents of a repository.
type repoState struct {
	repoInfo        // of the branch, or of main if the branch will start there; no commit in an empty repository
	exists   bool   // whether the repository exists
	branched bool   // whether the branch exists
	tagged   string // commit of the tag; "unknown" if not reported
	files    map[string]repoFile
	old      *manifest.Manifest // the existing package
}

// state reads the state of the repository.
func (h HuggingFace) state(ctx context.Context, api *huggingFaceAPI) (s repoState, err error) {
	s.repoInfo, err = api.info(ctx, h.branch())
	switch {
	case err == nil:
		s.exists, s.branched = true, true
	case noRevision(err) && h.branch() != mainBranch:
		s.exists = true
		if s.repoInfo, err = api.info(ctx, mainBranch); noRevision(err) {
			return s, fmt.Errorf("has no branch %s to start %s from", mainBranch, h.branch())
		}
	case noRevision(err):
		return repoState{exists: true}, nil // empty: the commit will create the branch
	case errors.Is(err, fs.ErrNotExist):
		return repoState{}, nil
	}
	if err != nil {
		return s, err
	}
	if h.Private && !s.private {
		return s, errors.New("exists and is public; make it private, or remove `private: true`")
	}
	if h.Tag != "" {
		_, tags, err := api.refs(ctx)
		if err != nil {
			return s, err
		}
		s.tagged = tags[h.Tag]
	}
	if s.files, err = api.tree(ctx, s.commit); err != nil {
		return s, err
	}
	s.old, err = oldPackage(s.files, func(name string, f repoFile) ([]byte, error) {
		return api.file(ctx, s.commit, name, f, manifest.MaxSize)
	})
	return s, err
}

// noRevision reports whether a repository exists and lacks the revision.
func noRevision(err error) bool {
	se := (*transfer.StatusError)(nil)
	return errors.As(err, &se) && se.Code == "RevisionNotFound"
}

// oldPackage reads the manifest of the package in a repository; nil if there is none. It rejects repositories with
// files other than the package and those that hubs put into new repositories.
func oldPackage(files map[string]repoFile, read func(string, repoFile) ([]byte, error)) (*manifest.Manifest, error) {
	ours := func(name string) bool { return name == cardFile || name == attributesFile }
	var old *manifest.Manifest
	if f, ok := files[manifest.FileName]; ok {
		b, err := read(manifest.FileName, f)
		if err != nil {
			return nil, err
		}
		if old, err = manifest.Parse(b); err != nil {
			return nil, fmt.Errorf("contains no package that llmexport can read, so it is not replaced: %w", err)
		}
		ours = func(name string) bool {
			return name == attributesFile || name == manifest.FileName || name == manifest.SignatureName ||
				slices.ContainsFunc(old.Files, func(f manifest.File) bool { return f.Name == name })
		}
	}
	if extra := foreign(files, ours); len(extra) > 0 {
		return nil, fmt.Errorf("contains %d files that are not part of a package, %.200q first, so it is not replaced", len(extra), extra[0])
	}
	return old, nil
}

// repoChanges compares a package with the contents of the repository.
type repoChanges struct {
	place.Diff
	send []place.Cargo
}

func compare(ctx context.Context, files []place.Cargo, there map[string]repoFile) (c repoChanges, err error) {
	wanted := map[string]bool{attributesFile: true}
	for _, f := range files {
		wanted[f.Name] = true
		have, ok := there[f.Name]
		same := ok && have.size == f.Size && have.sha256 == f.SHA256
		if ok && have.git != "" && have.size == f.Size {
			name, err := gitName(ctx, f)
			if err != nil {
				return c, err
			}
			same = have.git == name
		}
		switch {
		case same:
			c.Keep = append(c.Keep, f.Name)
			continue
		case ok:
			c.Change = append(c.Change, f.Name)
		default:
			c.Add = append(c.Add, f.Name)
		}
		c.send = append(c.send, f)
		c.Upload += f.Size
	}
	for name := range there {
		if !wanted[name] {
			c.Drop(name)
		}
	}
	c.Sort()
	return c, nil
}

func (c repoChanges) none() bool { return len(c.send) == 0 && len(c.Remove) == 0 }

// undo calls put for the files that the changes replace or remove, and remove for those that they add.
func (c *repoChanges) undo(was map[string]repoFile, put func(name string) error, remove func(name string)) error {
	for _, f := range c.send {
		if _, ok := was[f.Name]; !ok {
			remove(f.Name)
		} else if err := put(f.Name); err != nil {
			return err
		}
	}
	for _, name := range c.Remove {
		if err := put(name); err != nil {
			return err
		}
	}
	return nil
}

// status returns the effect of committing the changes.
func (s repoState) status(c repoChanges) place.Status {
	switch {
	case !s.branched:
		return place.Published
	case c.none():
		return place.Unchanged
	case s.old != nil:
		return place.Replaced
	}
	return place.Published
}

// diff returns what publishing changes. It does not check which files are already in storage, which needs write access.
func (s repoState) diff(ctx context.Context, p place.Package, tag string) (place.Diff, error) {
	f, err := place.FreightOf(p)
	if err != nil {
		return place.Diff{}, err
	}
	defer f.Close()
	c, err := compare(ctx, f.Files, s.files)
	if err == nil {
		err = s.tagFree(tag, c)
	}
	c.Status = s.status(c)
	return c.Diff, err
}

// Ready implements place.Store: the token may write, and the repository contains nothing but a package.
func (h HuggingFace) Ready(ctx context.Context, _ func(*manifest.Manifest) bool) error {
	api, err := h.connect()
	if err == nil {
		err = api.whoami(ctx)
	}
	if err == nil {
		_, err = h.state(ctx, api)
	}
	return err
}

// Diff implements Store.
func (h HuggingFace) Diff(ctx context.Context, p place.Package) (place.Diff, error) {
	api, err := h.connect()
	if err != nil {
		return place.Diff{}, err
	}
	s, err := h.state(ctx, api)
	if err != nil {
		return place.Diff{}, err
	}
	d, err := s.diff(ctx, p, h.Tag)
	d.Creates = h.creates(s)
	return d, err
}

// creates lists what does not exist yet.
func (h HuggingFace) creates(s repoState) string {
	var list []string
	if !s.exists {
		kind := "public"
		if h.Private {
			kind = "private"
		}
		list = append(list, kind+" repository "+h.Repo)
	}
	if !s.branched && h.branch() != mainBranch {
		list = append(list, "branch "+h.branch())
	}
	if h.Tag != "" && s.tagged == "" {
		list = append(list, "tag "+h.Tag)
	}
	return strings.Join(list, ", ")
}

// tagFree rejects a tag that names another commit.
func (s repoState) tagFree(tag string, c repoChanges) error {
	if s.tagged == "" || c.none() && s.tagged == s.commit {
		return nil
	}
	return fmt.Errorf("the tag %s already names commit %s; choose another", tag, s.tagged)
}
