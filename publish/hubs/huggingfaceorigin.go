package hubs

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/internal/transfer"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
)

// huggingFaceOrigin is a package at a commit of a Hugging Face repository.
type huggingFaceOrigin struct {
	api    *huggingFaceAPI
	commit string
}

// OpenHuggingFace opens the package of a repository of Hugging Face, "org/name" or "org/name@revision". A revision that is
// neither branch, tag nor commit may be a channel.
func OpenHuggingFace(ctx context.Context, rest string, po place.OpenOptions) (place.Origin, error) {
	o, err := hub.OptionsFromEnv()
	if err != nil {
		return nil, err
	}
	o.Client, o.UserAgent = po.HTTP, po.UserAgent
	return OpenHuggingFaceAt(ctx, rest, o, po)
}

// OpenHuggingFaceAt is [OpenHuggingFace] with explicit options in place of those of the environment.
func OpenHuggingFaceAt(ctx context.Context, rest string, o hub.Options, po place.OpenOptions) (place.Origin, error) {
	repo, revision, err := splitRevision(rest, mainBranch)
	if err != nil {
		return nil, err
	}
	api, err := newHuggingFaceAPI(o, repo, po.Transfer)
	if err != nil {
		return nil, err
	}
	info, err := api.info(ctx, revision)
	if noRevision(err) && channel.CheckName(revision) == nil {
		h, herr := shelf{api}.History(ctx, revision)
		if herr != nil {
			return nil, fmt.Errorf("channels of %s: %w", repo, herr)
		}
		if h != nil {
			return place.OpenChannel(ctx, shelf{api}, revision, po)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s@%s: %w", repo, revision, err)
	}
	return huggingFaceOrigin{api, info.commit}, nil
}

// splitRevision splits "org/name@revision"; the default revision is fallback. An error is a RefError.
func splitRevision(s, fallback string) (repo, revision string, err error) {
	repo, revision, named := strings.Cut(s, "@")
	if !named {
		revision = fallback
	}
	if err = hub.CheckRepo(repo); err == nil {
		err = hub.CheckRevision(revision) // an empty one after the @ is probably an unset variable
	}
	if err != nil {
		err = &place.RefError{Err: err}
	}
	return repo, revision, err
}

func (o huggingFaceOrigin) String() string { return "hf://" + o.api.repo + "@" + o.commit }

func (o huggingFaceOrigin) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	b, err := o.api.http.ReadFile(ctx, "read "+name, o.api.resolve(o.commit, name), limit, o.api.o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

func (o huggingFaceOrigin) Range(f manifest.File) transfer.Range {
	return o.api.http.Range(o.api.resolve(o.commit, f.Name), f.Size)
}
