package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/publish/manifest"
)

// Fetch finds the checkpoint that the recipe names: a local directory, a snapshot in the Hugging Face cache, or
// a hub repository that is downloaded into that cache. Every file gets a digest.
type Fetch struct {
	// Endpoint is the base URL of the hub; empty is the public one or HF_ENDPOINT.
	Endpoint string `json:"endpoint,omitempty" jsonschema:"description=Base URL of the hub or of a mirror; HF_ENDPOINT or the public hub if absent"`
}

// String implements pipeline.Stage.
func (*Fetch) String() string { return "fetch" }

// snapshotFile is the record of a checkpoint beside the store's artifacts.
type snapshotRecord struct {
	Dir      string     `json:"dir"`
	Repo     string     `json:"repo"`
	Revision string     `json:"revision"`
	Files    []hub.File `json:"files"`
}

// Run implements pipeline.Stage.
func (f *Fetch) Run(ctx context.Context, job *pipeline.Job) error {
	s, err := f.Resolve(ctx, job)
	if err != nil {
		return err
	}
	files, err := hub.HashFiles(ctx, s, filepath.Join(job.Store.Dir, "digests.json"))
	if err != nil {
		return err
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
