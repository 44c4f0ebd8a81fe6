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
	// Endpoint is the base URL of the hub; empty is the public one or HF_ENDPOINT.
	Endpoint string `json:"endpoint,omitempty" jsonschema_description:"Base URL of the hub or of a mirror; HF_ENDPOINT or the public hub if absent."`

	// Local is a directory with a copy of the checkpoint that the recipe names; it is read instead.
	Local string `json:"-"`
	// Want, if not nil, lists the files that the checkpoint must consist of.
	Want []hub.File `json:"-"`
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
	Files    []hub.File `json:"files"`
}

// Run implements pipeline.Stage.
func (f *Fetch) Run(ctx context.Context, job *pipeline.Job) (err error) {
	s, err := f.Resolve(ctx, job)
	if err != nil {
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
	rec := snapshotRecord{Dir: s.Dir, Repo: s.Repo, Revision: s.Revision, Files: files}
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
	o, err := hub.OptionsFromEnv()
	if err != nil {
		return nil, err
	}
	if f.Endpoint != "" {
		o.Endpoint = f.Endpoint
	}
	o.Progress = func(file string, done, total int64) { job.Limits.Report("fetch", file, done, total) }
	s, err := hub.Resolve(ctx, hub.Ref{Repo: m.Repo, Revision: m.Revision}, o)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return s, nil
}
