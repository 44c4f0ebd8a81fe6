package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/source"
)

// Fetch finds the checkpoint that the recipe names: a local directory, a snapshot in the Hugging Face cache, or
// a hub repository that is downloaded into that cache. Every file gets a digest.
type Fetch struct {
	// Source is the hub: empty or SourceHuggingFace, or hub.ModelScope.
	Source string `json:"source,omitempty" jsonschema:"enum=huggingface,enum=modelscope" jsonschema_description:"Hub that has the repository; huggingface if absent."`
	// Endpoint is the base URL of the hub; empty is the public one or that of the environment. It gets the token of
	// the environment only if it is the same server.
	Endpoint string `json:"endpoint,omitempty" jsonschema_description:"Base URL of the hub; that of the environment (HF_ENDPOINT, MODELSCOPE_ENDPOINT) or the public hub if absent. Tokens of the environment go to its own endpoint only."`
	// Mirrors are base URLs that are tried in order when the endpoint cannot be reached.
	Mirrors []string `json:"mirrors,omitempty" jsonschema_description:"Base URLs of servers that are tried in order when the endpoint cannot be reached, at most 4. They are sent no token."`
	// MinSpeed is the least speed of a connection, in bytes a second over a minute; 0 is transfer.DefaultMinSpeed.
	MinSpeed int64 `json:"min_speed,omitempty" jsonschema:"minimum=1" jsonschema_description:"Least average speed of a connection over a minute, in bytes a second; a slower one is replaced, at most five times; 1000 if absent."`
	// If Keep is false, each shard of the weights is downloaded, written to the package and removed.
	Keep bool `json:"keep" jsonschema_description:"Keep the weights of a repository in the cache; false downloads them shard by shard and removes each one once it is written, so checks that compare the package with the float model are skipped."`

	// Local is a directory with a copy of the checkpoint that the recipe names; it is read instead.
	Local string `json:"-"`
	// Want, if not nil, lists the files that the checkpoint must consist of.
	Want []hub.File `json:"-"`
	// Access, if not nil, is recorded instead of the hub's present answer; see [manifest.Source].
	Access *string `json:"-"`
	// Client sends the requests; nil is http.DefaultClient.
	Client *http.Client `json:"-"`
}

// NewFetch returns the defaults.
func NewFetch() *Fetch { return &Fetch{Keep: true} }

// String implements [pipeline.Stage].
func (*Fetch) String() string { return "fetch" }

// Run implements [pipeline.Stage].
func (f *Fetch) Run(ctx context.Context, r *Run) error {
	err := f.fetch(ctx, r)
	if err == nil && f.Want != nil {
		err = source.CheckFiles(r.origin.Files, f.Want)
	}
	if err != nil {
		return err
	}
	return f.seal(r)
}

// seal records the checkpoint, whose digest depends on the content only, not on its location.
func (f *Fetch) seal(r *Run) error {
	b, err := json.Marshal(r.origin.Files)
	if err != nil {
		return err
	}
	r.Checkpoint = pipeline.Artifact{Name: "checkpoint", Path: r.origin.Dir, Digest: digest.Of(b)}
	return nil
}

// fetch downloads the checkpoint, or the part of it that is kept.
func (f *Fetch) fetch(ctx context.Context, r *Run) error {
	if !f.Keep {
		return f.fetchHeaders(ctx, r)
	}
	s, err := f.resolve(ctx, r)
	if err != nil {
		return err
	}
	r.origin = f.originOf(s)
	if err = r.Quantize.checkDir(ctx, r, r.origin); err == nil && r.Recipe.Model.Path == "" {
		err = r.Quantize.prepareDir(ctx, r, r.origin)
	}
	if err != nil {
		return err
	}
	r.begin(ctx)
	if err := f.hash(ctx, r, s); err != nil {
		return err
	}
	return f.offer(ctx, r, s)
}

// originOf is the origin of a snapshot with all of its files on this machine.
func (f *Fetch) originOf(s *hub.Snapshot) source.Origin {
	return source.Origin{Dir: s.Dir, Hub: s.Source, Repo: s.Repo, Revision: s.Revision, Access: f.access(s)}
}

// digestsFile remembers the digests of files, in the store.
const digestsFile = "digests.json"

func digestsPath(s pipeline.Store) string { return filepath.Join(s.Dir(), digestsFile) }

// hash records the digests of the files that are on this machine.
func (f *Fetch) hash(ctx context.Context, r *Run, s *hub.Snapshot) (err error) {
	unlock, err := r.Store.Lock(ctx, digestsFile)
	if err != nil {
		return err
	}
	defer unlock()
	r.here = s
	r.origin.Files, err = hub.HashFiles(ctx, s, digestsPath(r.Store))
	return again(s, err)
}

// sourceHuggingFace names the default source.
const sourceHuggingFace = "huggingface"

// Validate implements [pipeline.Validator].
func (f *Fetch) Validate(_ context.Context, r *Run) error {
	if err := f.validateKeep(r); err != nil || r.Recipe.Model.Path != "" {
		return err
	}
	sec := r.Recipe.Stages["fetch"]
	err := check(sec,
		rule{f.Source != "" && f.Source != sourceHuggingFace && f.Source != hub.ModelScope, "source",
			fmt.Sprintf("must be %s or %s, not %q", sourceHuggingFace, hub.ModelScope, f.Source)},
		rule{f.MinSpeed < 0, "min_speed", fmt.Sprintf("must be at least 1, not %d", f.MinSpeed)},
		rule{len(f.Mirrors) > hub.MaxMirrors, "mirrors", fmt.Sprintf("must be at most %d", hub.MaxMirrors)},
	)
	if err != nil {
		return err
	}
	if f.Endpoint != "" {
		if err := hub.CheckEndpoint(f.Endpoint); err != nil {
			return sec.Errorf("endpoint", "%v", err)
		}
	}
	for i, m := range f.Mirrors {
		if err := hub.CheckEndpoint(m); err != nil {
			return sec.Errorf(fmt.Sprintf("mirrors[%d]", i), "%v", err)
		}
	}
	return nil
}

// Prepare implements [pipeline.Preparer]: it checks that the licence of a checkpoint on this machine allows publishing it as
// the recipe does. The licence of a repository is checked once its small files are downloaded.
func (f *Fetch) Prepare(ctx context.Context, r *Run) error {
	if r.Recipe.Model.Path == "" {
		return nil
	}
	_, err := f.Resolve(ctx, r, func(s *hub.Snapshot) error { return f.checkTerms(ctx, r, s) })
	return err
}

// beforeWeights checks a repository before its weights are fetched: the licence allows publishing it as the recipe does, and
// the places can accept it.
func (f *Fetch) beforeWeights(ctx context.Context, r *Run) func(s *hub.Snapshot) error {
	return func(s *hub.Snapshot) error {
		if err := f.checkTerms(ctx, r, s); err != nil || r.Recipe.Model.Path != "" || r.apart {
			return err
		}
		if err := r.Publish.ready(ctx, r); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		return nil
	}
}
