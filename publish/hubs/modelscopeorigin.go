package hubs

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// modelScopeOrigin is a package at a commit of a ModelScope repository.
type modelScopeOrigin struct {
	api    *modelScopeAPI
	commit string
	files  map[string]repoFile
}

// OpenModelScope opens the package of a repository of ModelScope, "org/name" or "org/name@revision".
func OpenModelScope(ctx context.Context, rest string, po place.OpenOptions) (place.Origin, error) {
	o, err := hub.ModelScopeFromEnv()
	if err != nil {
		return nil, err
	}
	o.Client, o.UserAgent = po.HTTP, po.UserAgent
	return OpenModelScopeAt(ctx, rest, o, po.Transfer)
}

// OpenModelScopeAt is [OpenModelScope] with explicit options in place of those of the environment.
func OpenModelScopeAt(ctx context.Context, rest string, o hub.Options, t transfer.Options) (place.Origin, error) {
	repo, revision, err := splitRevision(rest, masterBranch)
	if err != nil {
		return nil, err
	}
	api, err := newModelScopeAPI(o, repo, t)
	if err != nil {
		return nil, err
	}
	l, err := api.list(ctx, revision)
	if err != nil {
		return nil, fmt.Errorf("%s@%s: %w", repo, revision, err)
	}
	if gitID.MatchString(revision) {
		return modelScopeOrigin{api, revision, l.files}, nil
	}
	if !l.named && l.commit != "" {
		// The commit of the newest file stands for the revision if it has the same contents.
		at, err := api.list(ctx, l.commit)
		if err != nil || !sameFiles(at.files, l.files) {
			l.commit = ""
		}
	}
	if l.commit == "" {
		return nil, fmt.Errorf("%s: ModelScope does not report the commit of %s; use a commit as the revision: %w", repo, revision, tensor.ErrUnsupported)
	}
	return modelScopeOrigin{api, l.commit, l.files}, nil
}

func (o modelScopeOrigin) String() string { return "ms://" + o.api.repo + "@" + o.commit }

func (o modelScopeOrigin) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, ok := o.files[name]
	if !ok {
		return nil, fmt.Errorf("%s: %s: %w", o, name, fs.ErrNotExist)
	}
	if err := place.CheckSize(name, f.size, limit); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	b, err := o.api.read(ctx, o.commit, name, f, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", o, name, err)
	}
	return b, nil
}

func (o modelScopeOrigin) Range(f manifest.File) transfer.Range {
	return o.api.http.Range(o.api.file(o.commit, f.Name), f.Size)
}
