// Package hubs publishes packages to repositories of Hugging Face and of ModelScope, and opens packages there. Both are git
// repositories with storage of large files beside them (LFS); what differs is how one talks to them.
package hubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

const (
	mainBranch = "main"
	cardFile   = "README.md"
)

// HuggingFace publishes to a repository of Hugging Face, or of a hub that speaks its protocol.
//
// Stage makes the repository if there is none and sends large files to storage, where nobody sees them. Commit makes
// one commit on top of the state that Stage saw: when somebody else has committed meanwhile, nothing is shown. The
// repository holds the package and what the hub itself puts there; a repository with other files is left alone.
type HuggingFace struct {
	// Repo is "org/name".
	Repo string
	// Private makes a new repository private. One that is public already is an error then.
	Private bool
	// Gated asks readers to accept terms: "auto" or "manual"; empty leaves the repository as it is.
	Gated string
	// Branch is where the commit goes; empty is "main". A new branch starts at main.
	Branch string
	// Tag names the commit; may be empty. A tag is never moved.
	Tag string
	// Endpoint must be that of the environment, whose token is used; empty accepts any.
	Endpoint string
	// Message is the title of the commit; empty names the package.
	Message string
	// Options say where the hub is and who we are; nil is hub.OptionsFromEnv.
	Options *hub.Options
	// Transfer says how patient requests are.
	Transfer transfer.Options
}

// String names the repository, and the branch if it is not the main one.
func (h HuggingFace) String() string {
	if h.Branch != "" && h.Branch != mainBranch {
		return "hub " + h.Repo + "@" + h.Branch
	}
	return "hub " + h.Repo
}

// Public reports whether everybody may read the repository. People who may ask for access to a gated one are everybody.
func (h HuggingFace) Public() bool { return !h.Private }

// Check refuses options that no hub understands.
func (h HuggingFace) Check() error {
	err := hub.CheckRepo(h.Repo)
	if err == nil && !strings.Contains(h.Repo, "/") {
		err = fmt.Errorf("repository %q is not of the form org/name", h.Repo)
	}
	for _, name := range []string{h.Branch, h.Tag} {
		if err == nil && name != "" {
			err = hub.CheckRevision(name)
		}
		if err == nil && gitID.MatchString(name) {
			err = fmt.Errorf("%s is a commit, and no name of a branch or tag", name)
		}
	}
	if err == nil && h.Gated != "" && h.Gated != "auto" && h.Gated != "manual" {
		err = fmt.Errorf("gated: %.40q is not auto or manual", h.Gated)
	}
	return err
}

func (h HuggingFace) branch() string { return cmp.Or(h.Branch, mainBranch) }

// connect gives the client. A recipe may come from anywhere: it cannot choose where the token is sent.
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
		return nil, fmt.Errorf("the endpoint is not %s, for which the token is: set HF_ENDPOINT", have)
	}
	return newHuggingFaceAPI(o, h.Repo, h.Transfer)
}

// repoState is what a repository holds.
type repoState struct {
	repoInfo        // of the branch, or of main where the branch will start; no commit in an empty repository
	exists   bool   // the repository
	branched bool   // the branch
	tagged   string // commit of the tag; "unknown" where that is not said
	files    map[string]repoFile
	old      *manifest.Manifest // the package that is there
}

// state reads what is there.
func (h HuggingFace) state(ctx context.Context, api *huggingFaceAPI) (s repoState, err error) {
	s.repoInfo, err = api.info(ctx, h.branch())
	switch {
	case err == nil:
		s.exists, s.branched = true, true
	case noRevision(err) && h.branch() != mainBranch:
		s.exists = true
		if s.repoInfo, err = api.info(ctx, mainBranch); noRevision(err) {
			return s, fmt.Errorf("has no branch %s to begin %s at", mainBranch, h.branch())
		}
	case noRevision(err):
		return repoState{exists: true}, nil // empty: the commit makes the branch
	case errors.Is(err, fs.ErrNotExist):
		return repoState{}, nil
	}
	if err != nil {
		return s, err
	}
	if h.Private && !s.private {
		return s, errors.New("exists and is public; make it private, or take `private: true` away")
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

// noRevision reports whether a repository lacks the revision, and is there.
func noRevision(err error) bool {
	se := (*transfer.StatusError)(nil)
	return errors.As(err, &se) && se.Code == "RevisionNotFound"
}

// oldPackage reads the manifest of the package that a repository holds; nil if it holds none. It refuses a repository
// that holds anything else than the package and what hubs put into new repositories.
func oldPackage(files map[string]repoFile, read func(string, repoFile) ([]byte, error)) (*manifest.Manifest, error) {
	ours := func(name string) bool { return name == cardFile || name == attributesFile }
	var old *manifest.Manifest
	if f, ok := files[manifest.FileName]; ok {
		b, err := read(manifest.FileName, f)
		if err != nil {
			return nil, err
		}
		if old, err = manifest.Parse(b); err != nil {
			return nil, fmt.Errorf("holds no package that this program reads and is left alone: %w", err)
		}
		ours = func(name string) bool {
			return name == attributesFile || name == manifest.FileName || name == manifest.SignatureName ||
				slices.ContainsFunc(old.Files, func(f manifest.File) bool { return f.Name == name })
		}
	}
	if extra := foreign(files, ours); len(extra) > 0 {
		return nil, fmt.Errorf("holds %d files that no package of ours lists, %.200q first; it is left alone", len(extra), extra[0])
	}
	return old, nil
}

// repoChanges compares a package with what is there.
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

// status is what committing the changes does.
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

// diff says what publishing changes. Whether storage has some of the files already is not asked: that needs the right to
// write.
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

// Diff implements Store.
func (h HuggingFace) Diff(ctx context.Context, p place.Package) (place.Diff, error) {
	d, err := h.diff(ctx, p)
	if err != nil {
		return place.Diff{}, fmt.Errorf("%s: %w", h, err)
	}
	return d, nil
}

// Ready implements place.Store: the token may write, and nothing but a package is in the way.
func (h HuggingFace) Ready(ctx context.Context, _ func(*manifest.Manifest) bool) error {
	api, err := h.connect()
	if err == nil {
		err = api.whoami(ctx)
	}
	if err == nil {
		_, err = h.state(ctx, api)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h, err)
	}
	return nil
}

func (h HuggingFace) diff(ctx context.Context, p place.Package) (place.Diff, error) {
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

// creates says what is not there yet.
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

// tagFree refuses a tag that names something else.
func (s repoState) tagFree(tag string, c repoChanges) error {
	if s.tagged == "" || c.none() && s.tagged == s.commit {
		return nil
	}
	return fmt.Errorf("the tag %s is at commit %s and is not moved; choose another", tag, s.tagged)
}

// Stage implements Store.
func (h HuggingFace) Stage(ctx context.Context, p place.Package) (place.Staged, error) {
	s, err := h.stage(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h, err)
	}
	return s, nil
}
