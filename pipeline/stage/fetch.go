package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish/manifest"
)

// Fetch finds the checkpoint that the recipe names: a local directory, a snapshot in the Hugging Face cache, or
// a hub repository that is downloaded into that cache. Every file gets a digest.
type Fetch struct {
	// Source is the hub: empty or SourceHuggingFace, or hub.ModelScope.
	Source string `json:"source,omitempty" jsonschema:"enum=huggingface,enum=modelscope" jsonschema_description:"Hub that has the repository; huggingface if absent."`
	// Endpoint is the base URL of the hub; empty is the public one or that of the environment. It gets the token of
	// the environment only if it is the same server.
	Endpoint string `json:"endpoint,omitempty" jsonschema_description:"Base URL of the hub; that of the environment (HF_ENDPOINT, MODELSCOPE_ENDPOINT) or the public hub if absent. Tokens of the environment go to its own endpoint only."`
	// Mirrors are base URLs that are asked in their order when the endpoint cannot be reached.
	Mirrors []string `json:"mirrors,omitempty" jsonschema_description:"Base URLs of servers that are asked in their order when the endpoint cannot be reached, at most 4. They are sent no token."`

	// Local is a directory with a copy of the checkpoint that the recipe names; it is read instead.
	Local string `json:"-"`
	// Want, if not nil, lists the files that the checkpoint must consist of.
	Want []hub.File `json:"-"`
	// Access, if not nil, is what is recorded instead of what the hub says now; see manifest.Source.
	Access *string `json:"-"`
}

// OtherSourceError says which files of a checkpoint are not those that are wanted.
type OtherSourceError struct{ Files []string }

func (e *OtherSourceError) Error() string {
	return "the source is not what the package was made from: " + strings.Join(e.Files, ", ") + " differ"
}

// differ lists the names of files that are in one list only, or with another digest.
func differ(a, b []hub.File) []string {
	sums := map[string]string{}
	for _, f := range a {
		sums[f.Name] = f.SHA256
	}
	var names []string
	for _, f := range b {
		if s, ok := sums[f.Name]; !ok || s != f.SHA256 {
			names = append(names, f.Name)
		}
		delete(sums, f.Name)
	}
	names = append(names, slices.Collect(maps.Keys(sums))...)
	slices.Sort(names)
	return names
}

// String implements pipeline.Stage.
func (*Fetch) String() string { return "fetch" }

// snapshotRecord is the record of a checkpoint beside the store's artifacts.
type snapshotRecord struct {
	Dir      string     `json:"dir"`
	Repo     string     `json:"repo"`
	Revision string     `json:"revision"`
	Access   string     `json:"access,omitempty"` // see manifest.Source
	Files    []hub.File `json:"files"`
}

func recordOf(s *hub.Snapshot, files []hub.File) snapshotRecord {
	return snapshotRecord{Dir: s.Dir, Repo: s.Repo, Revision: s.Revision, Source: s.Source, Gated: s.Gated, Private: s.Private, Listed: s.Listed, Files: files}
}

// Run implements pipeline.Stage.
func (f *Fetch) Run(ctx context.Context, job *pipeline.Job) (err error) {
	s, err := f.Resolve(ctx, job)
	if err != nil {
		return err
	}
	access := accessOf(s)
	if f.Access != nil {
		access = *f.Access
	}
	if err := checkTerms(job, s.Dir, access); err != nil {
		return err
	}
	q, err := quantizeOf(job)
	if err == nil {
		err = q.suitsDir(job, s.Dir)
	}
	if err != nil {
		return err
	}
	a := beginAhead(ctx, job, s.Dir)
	job.Ahead = a
	defer func() {
		if err != nil {
			a.stop()
		}
	}()
	files, err := hub.HashFiles(ctx, s, filepath.Join(job.Store.Dir, "digests.json"))
	if err != nil {
		return err
	}
	if f.Want != nil {
		if d := differ(files, f.Want); len(d) > 0 {
			return &OtherSourceError{d}
		}
	}
	rec := snapshotRecord{Dir: s.Dir, Repo: s.Repo, Revision: s.Revision, Access: access, Files: files}
	var size int64
	for _, x := range files {
		size += x.Size
	}
	// The digest names the content alone, not where it lies.
	b, err := json.Marshal(files)
	if err != nil {
		return err
	}
	digest := manifest.DigestOf(b)
	b, err = json.Marshal(rec)
	if err != nil {
		return err
	}
	path := filepath.Join(job.Store.Dir, "checkpoint-"+digest.Hex()[:24]+".json")
	if err := pipeline.WriteFile(path, b); err != nil {
		return err
	}
	job.Artifacts.Add(pipeline.Artifact{Kind: pipeline.Checkpoint, Name: s.Dir, Path: path, Digest: digest, Size: size})
	return nil
}

// sourceHuggingFace is the source that is meant where none is named.
const sourceHuggingFace = "huggingface"

// Validate implements pipeline.Validator.
func (f *Fetch) Validate(job *pipeline.Job) error {
	if job.Recipe.Model.Path != "" {
		return nil
	}
	if f.Source != "" && f.Source != sourceHuggingFace && f.Source != hub.ModelScope {
		return job.Recipe.Errorf("fetch.source", "must be %s or %s, not %q", sourceHuggingFace, hub.ModelScope, f.Source)
	}
	check := func(path, address string) error {
		if err := hub.CheckEndpoint(address); err != nil {
			return job.Recipe.Errorf(path, "%v", err)
		}
		return nil
	}
	if f.Endpoint != "" {
		if err := check("fetch.endpoint", f.Endpoint); err != nil {
			return err
		}
	}
	if len(f.Mirrors) > hub.MaxMirrors {
		return job.Recipe.Errorf("fetch.mirrors", "must be at most %d", hub.MaxMirrors)
	}
	for i, m := range f.Mirrors {
		if err := check(fmt.Sprintf("fetch.mirrors[%d]", i), m); err != nil {
			return err
		}
	}
	return nil
}

// options are those of the environment, with what the recipe says instead.
func (f *Fetch) options() (hub.Options, error) {
	read := hub.OptionsFromEnv
	if f.Source == hub.ModelScope {
		read = hub.ModelScopeFromEnv
	}
	o, err := read()
	if err != nil {
		return hub.Options{}, err
	}
	if f.Endpoint != "" {
		o = o.At(f.Endpoint)
	}
	o.Mirrors = f.Mirrors
	return o, nil
}

// Resolve finds the checkpoint without reading it.
func (f *Fetch) Resolve(ctx context.Context, job *pipeline.Job) (*hub.Snapshot, error) {
	m := job.Recipe.Model
	if f.Local != "" {
		s, err := hub.Resolve(ctx, hub.Ref{Path: f.Local}, hub.Options{})
		if err != nil {
			return nil, err
		}
		s.Repo, s.Revision = m.Repo, m.Revision
		return s, nil
	}
	if m.Path != "" {
		return hub.Resolve(ctx, hub.Ref{Path: job.Recipe.Resolve(m.Path)}, hub.Options{})
	}
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	o.Progress = func(file string, done, total int64) { job.Limits.Report("fetch", file, done, total) }
	s, err := hub.Resolve(ctx, hub.Ref{Repo: m.Repo, Revision: m.Revision}, o)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return s, nil
}
