package hubs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

const (
	masterBranch = "master"
	// modelScopeFile is a file that ModelScope adds to repositories.
	modelScopeFile = "configuration.json"
)

// ModelScope publishes to a repository of modelscope.cn.
//
// It works as [HuggingFace], within the limits of the service: a commit does not name its parent, so another commit
// between the last check and ours goes unnoticed, and the last request of a killed run may overlap with that of the
// next one, which makes two equal commits. All files are committed in one request, and then checked. Branches cannot be
// created. See modelScopeAPI for what is verified of this and what is assumed.
type ModelScope struct {
	// Repo is "org/name".
	Repo string
	// Private makes a new repository private. For one that is already public it is an error.
	Private bool
	// Branch is the branch to commit to; empty is "master". It must exist.
	Branch string
	// Tag names the commit; may be empty. An existing tag is never moved.
	Tag string
	// Endpoint must be that of the environment, whose token is used; empty accepts any.
	Endpoint string
	// Message is the title of the commit; empty names the package.
	Message string
	// Options hold the address of ModelScope and the credentials; nil is hub.ModelScopeFromEnv.
	Options *hub.Options
	// Transfer sets retries and timeouts of requests.
	Transfer transfer.Options
}

// String names the repository, and the branch unless it is the default one.
func (m ModelScope) String() string {
	if m.branch() != masterBranch {
		return "modelscope " + m.Repo + "@" + m.branch()
	}
	return "modelscope " + m.Repo
}

// Public reports whether everybody may read the repository.
func (m ModelScope) Public() bool { return !m.Private }

func (m ModelScope) branch() string { return cmp.Or(m.Branch, masterBranch) }

// Check rejects invalid options.
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
		return nil, fmt.Errorf("the endpoint is not %s, which the token is for; set MODELSCOPE_ENDPOINT", o.Endpoint)
	}
	return newModelScopeAPI(o, m.Repo, m.Transfer)
}

// modelScopeState is the contents of a repository.
type modelScopeState struct {
	repoState
	inGit map[string]bool // files whose content is in git
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
		return s, errors.New("exists and is public; make it private, or remove `private: true`")
	}
	branches, tags, err := api.refs(ctx)
	if err != nil {
		return s, err
	}
	if _, ok := branches[m.branch()]; !ok && m.branch() != masterBranch {
		return s, fmt.Errorf("has no branch %s, and ModelScope has no API to create it; create it in the browser: %w", m.branch(), fs.ErrNotExist)
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
	// Files that ModelScope adds are neither ours nor in the way.
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
	return err
}

// Diff implements Store.
func (m ModelScope) Diff(ctx context.Context, p place.Package) (place.Diff, error) {
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
