package hubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

const (
	masterBranch = "master"
	// modelScopeFile is what ModelScope puts into repositories beside the card.
	modelScopeFile = "configuration.json"
)

// ModelScope publishes to a repository of modelscope.cn.
//
// It works as [HuggingFace] does, with what the service offers: a commit cannot name the state it is made on, so another one
// between the last look and ours is not noticed, and the last request of a killed run may be done beside that of the next,
// which makes two equal commits. It is all files in one request, then looked at again. Branches cannot be made. What of
// this is known and what is believed is said at modelScopeAPI.
type ModelScope struct {
	// Repo is "org/name".
	Repo string
	// Private makes a new repository private. One that is public already is an error then.
	Private bool
	// Branch is where the commit goes; empty is "master". It must be there.
	Branch string
	// Tag names the commit; may be empty. A tag is never moved.
	Tag string
	// Endpoint must be that of the environment, whose token is used; empty accepts any.
	Endpoint string
	// Message is the title of the commit; empty names the package.
	Message string
	// Options say where ModelScope is and who we are; nil is hub.ModelScopeFromEnv.
	Options *hub.Options
	// Transfer says how patient requests are.
	Transfer transfer.Options
}

// String names the repository, and the branch if it is not the usual one.
func (m ModelScope) String() string {
	if m.branch() != masterBranch {
		return "modelscope " + m.Repo + "@" + m.branch()
	}
	return "modelscope " + m.Repo
}

// Public reports whether everybody may read the repository.
func (m ModelScope) Public() bool { return !m.Private }

func (m ModelScope) branch() string { return cmp.Or(m.Branch, masterBranch) }

// Check refuses options that ModelScope does not understand.
func (m ModelScope) Check() error {
	return HuggingFace{Repo: m.Repo, Branch: m.Branch, Tag: m.Tag}.Check()
}

func (m ModelScope) connect() (*modelScopeAPI, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	var o hub.Options
	if m.Options != nil {
		o = *m.Options
	} else {
		var err error
		if o, err = hub.ModelScopeFromEnv(); err != nil {
			return nil, err
		}
	}
	if want := strings.TrimRight(m.Endpoint, "/"); want != "" && want != strings.TrimRight(o.Endpoint, "/") {
		return nil, fmt.Errorf("the endpoint is not %s, for which the token is: set MODELSCOPE_ENDPOINT", o.Endpoint)
	}
	return newModelScopeAPI(o, m.Repo, m.Transfer)
}

// modelScopeState is what a repository holds.
type modelScopeState struct {
	repoState
	inGit map[string]bool // which files have their content in git
}

func (m ModelScope) state(ctx context.Context, api *modelScopeAPI) (s modelScopeState, err error) {
	visibility, err := api.visibility(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if m.Private && visibility == modelScopePublic {
		return s, errors.New("exists and is public; make it private, or take `private: true` away")
	}
	branches, tags, err := api.refs(ctx)
	if err != nil {
		return s, err
	}
	if _, ok := branches[m.branch()]; !ok && m.branch() != masterBranch {
		return s, fmt.Errorf("has no branch %s, and ModelScope makes none on request: make it first: %w", m.branch(), fs.ErrNotExist)
	}
	l, err := api.list(ctx, m.branch())
	if err != nil {
		return s, err
	}
	s.commit, s.files, s.inGit = l.commit, l.files, l.inGit
	s.exists, s.branched, s.tagged = true, true, tags[m.Tag]
	if _, there := tags[m.Tag]; there && s.tagged == "" {
		s.tagged = "unknown"
	}
	// What ModelScope puts there itself is neither ours nor in the way.
	delete(s.files, modelScopeFile)
	s.old, err = oldPackage(s.files, func(name string, f repoFile) ([]byte, error) {
		return api.read(ctx, cmp.Or(s.commit, m.branch()), name, f, manifest.MaxSize)
	})
	return s, err
}

// Ready implements place.Store.
func (m ModelScope) Ready(ctx context.Context, _ func(*manifest.Manifest) bool) error {
	api, err := m.connect()
	if err == nil {
		_, err = m.state(ctx, api)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	return nil
}

// Diff implements Store.
func (m ModelScope) Diff(ctx context.Context, p place.Package) (place.Diff, error) {
	d, err := m.diff(ctx, p)
	if err != nil {
		return place.Diff{}, fmt.Errorf("%s: %w", m, err)
	}
	return d, nil
}

func (m ModelScope) diff(ctx context.Context, p place.Package) (place.Diff, error) {
	api, err := m.connect()
	if err != nil {
		return place.Diff{}, err
	}
	s, err := m.state(ctx, api)
	if err != nil {
		return place.Diff{}, err
	}
	d, err := s.diff(ctx, p, m.Tag)
	d.Creates = HuggingFace{Repo: m.Repo, Private: m.Private, Tag: m.Tag}.creates(s.repoState)
	return d, err
}

// Stage implements Store.
func (m ModelScope) Stage(ctx context.Context, p place.Package) (place.Staged, error) {
	s, err := m.stage(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m, err)
	}
	return s, nil
}
