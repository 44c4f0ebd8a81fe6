package stage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/hub"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
	"github.com/llmexport/llmexport/runtime/tensor"
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
	// MinSpeed is the number of bytes a second that a connection has to bring over a minute; 0 is transfer.DefaultMinSpeed.
	MinSpeed int64 `json:"min_speed,omitempty" jsonschema:"minimum=1" jsonschema_description:"Bytes a second that a connection has to bring on average over a minute before it is tried anew, which is given up after five times; 1000 if absent."`
	// Keep false brings the weights to the writer shard by shard and leaves none of them on the disk.
	Keep bool `json:"keep" jsonschema_description:"Keep the weights of a repository in the cache; false brings them shard by shard and removes each when it is written, which leaves out what compares the package with the float model."`

	// Local is a directory with a copy of the checkpoint that the recipe names; it is read instead.
	Local string `json:"-"`
	// Want, if not nil, lists the files that the checkpoint must consist of.
	Want []hub.File `json:"-"`
	// Access, if not nil, is what is recorded instead of what the hub says now; see manifest.Source.
	Access *string `json:"-"`
	// Client sends the requests; nil is http.DefaultClient.
	Client *http.Client `json:"-"`
}

// NewFetch returns the defaults.
func NewFetch() *Fetch { return &Fetch{Keep: true} }

// OtherSourceError says which files of a checkpoint are not those that are wanted.
type OtherSourceError struct{ Files []string }

func (e *OtherSourceError) Error() string {
	return "the source is not what the package was made from: " + strings.Join(e.Files, ", ") + " differ"
}

// checkSource compares the checkpoint in dir with what manifests say of the source of their packages: every file that one names
// is there, but for licences and cards, which nothing is computed from, and no other weights are. Manifests may be nil.
func checkSource(ctx context.Context, dir string, manifests ...*manifest.Manifest) error {
	manifests = slices.DeleteFunc(manifests, func(m *manifest.Manifest) bool { return m == nil || len(m.Source.Files) == 0 })
	if len(manifests) == 0 {
		return nil
	}
	s, err := hub.Resolve(ctx, hub.Ref{Path: dir}, hub.Options{})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // opening it says what is missing
	case err != nil:
		return err
	}
	// other lists the names of files that are not those of a manifest, as far as compare tells.
	other := func(files []hub.File, compare func(a hub.File, b manifest.File) bool) []string {
		var names []string
		for _, m := range manifests {
			for _, b := range m.Source.Files {
				i := slices.IndexFunc(files, func(a hub.File) bool { return a.Name == b.Name })
				if unread := b.Name == about.CardName || about.IsLicense(b.Name); !unread && (i < 0 || !compare(files[i], b)) {
					names = append(names, b.Name)
				}
			}
			for _, a := range files {
				named := slices.ContainsFunc(m.Source.Files, func(b manifest.File) bool { return a.Name == b.Name })
				if strings.HasSuffix(a.Name, ".safetensors") && !named {
					names = append(names, a.Name)
				}
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	// Most others have other sizes, which takes no time to see.
	names := other(s.Files, func(a hub.File, b manifest.File) bool { return a.Size == b.Size })
	if len(names) == 0 {
		files, err := hub.HashFiles(ctx, s, "")
		if err != nil {
			return err
		}
		names = other(files, func(a hub.File, b manifest.File) bool { return a.SHA256 == b.SHA256 })
	}
	if len(names) > 0 {
		return &OtherSourceError{names}
	}
	return nil
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
	Source   string     `json:"source,omitempty"` // hub.ModelScope, or empty
	Access   string     `json:"access,omitempty"` // see manifest.Source
	Files    []hub.File `json:"files"`
	// Heads are the beginnings of the shards, where their weights are not kept. Elsewhere is what they are fetched from, nil if
	// they are in Dir.
	Heads     map[string]safetensors.Head `json:"heads,omitempty"`
	Elsewhere *hub.Snapshot               `json:"elsewhere,omitempty"`

	here *hub.Snapshot // the files that are in Dir
}

func (f *Fetch) recordOf(s *hub.Snapshot, files []hub.File) snapshotRecord {
	return snapshotRecord{Dir: s.Dir, Repo: s.Repo, Revision: s.Revision, Source: s.Source, Access: f.access(s), Files: files}
}

// hash notes the digests of the files that are here.
func (r *snapshotRecord) hash(ctx context.Context, job *pipeline.Job, s *hub.Snapshot) error {
	var err error
	r.Files, err = hub.HashFiles(ctx, s, filepath.Join(job.Store.Dir, digestsFile))
	r.here = s
	return again(s, err)
}

// again has a run begin anew after a file turned out to be wrong that the hub has, too: it is not in the cache any more.
func again(s *hub.Snapshot, err error) error {
	if s.Repo != "" && errors.Is(err, tensor.ErrCorrupt) {
		return fmt.Errorf("%w; %w", err, pipeline.ErrAgain)
	}
	return err
}

// made is [pipeline.Job.Do] for entries that are made of the checkpoint: before something is made its files are read, once
// in a run, unless that was done when their digests were taken.
func made(ctx context.Context, job *pipeline.Job, stage, key string, build pipeline.Build, keep ...string) (pipeline.Artifact, error) {
	return job.Do(ctx, stage, key, func(p *pipeline.Partial) (manifest.Digest, error) {
		a, err := job.Artifacts.One(pipeline.Checkpoint)
		if err != nil {
			return "", err
		}
		if err := reread(ctx, a); err != nil {
			return "", err
		}
		return build(p)
	}, keep...)
}

// reread compares the files of a checkpoint that this run has not read yet with their digests.
func reread(ctx context.Context, a pipeline.Artifact) error {
	s, ok := a.Detail.(*hub.Snapshot)
	if !ok {
		return nil
	}
	return again(s, s.Reread(ctx))
}

// blame returns why a checkpoint could not be opened: its files are not what they were, or else err.
func blame(ctx context.Context, a pipeline.Artifact, err error) error {
	if wrong := (*recipes.Error)(nil); errors.As(err, &wrong) {
		return err
	}
	return cmp.Or(reread(ctx, a), err)
}

// Run implements pipeline.Stage.
func (f *Fetch) Run(ctx context.Context, job *pipeline.Job) (err error) {
	defer func() {
		if err != nil {
			aheadOf(job).stop()
		}
	}()
	rec, err := f.fetch(ctx, job)
	if err != nil {
		return err
	}
	files := rec.Files
	if f.Want != nil {
		if d := differ(files, f.Want); len(d) > 0 {
			return &OtherSourceError{d}
		}
	}
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
	name := "checkpoint-" + digest.Hex()[:24]
	if !f.Keep {
		name += "-streamed"
	}
	path := filepath.Join(job.Store.Dir, name+".json")
	if err := pipeline.WriteFile(path, b); err != nil {
		return err
	}
	job.Artifacts.Add(pipeline.Artifact{Kind: pipeline.Checkpoint, Name: rec.Dir, Path: path, Digest: digest, Size: size, Detail: rec.here})
	return nil
}

// fetch brings the checkpoint, or what of it is kept.
func (f *Fetch) fetch(ctx context.Context, job *pipeline.Job) (*snapshotRecord, error) {
	if !f.Keep {
		return f.fetchHeaders(ctx, job)
	}
	s, err := f.resolve(ctx, job, f.beforeWeights(ctx))
	if err != nil {
		return nil, err
	}
	q, err := quantizeOf(job)
	if err == nil {
		err = q.suitsDir(job, s.Dir)
	}
	if err == nil && job.Recipe.Model.Path == "" {
		err = q.prepareDir(job, s.Dir)
	}
	if err != nil {
		return nil, err
	}
	job.Ahead = beginAhead(ctx, job, s.Dir)
	rec := f.recordOf(s, nil)
	return &rec, rec.hash(ctx, job, s)
}

// sourceHuggingFace is the source that is meant where none is named.
const sourceHuggingFace = "huggingface"

// Validate implements pipeline.Validator.
func (f *Fetch) Validate(job *pipeline.Job) error {
	if err := f.validateKeep(job); err != nil || job.Recipe.Model.Path != "" {
		return err
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
	if f.MinSpeed < 0 {
		return job.Recipe.Errorf("fetch.min_speed", "must be at least 1, not %d", f.MinSpeed)
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

// Prepare implements pipeline.Preparer: the licence of a checkpoint that is on this machine allows what the recipe publishes.
// That of a repository is looked at once its small files are here.
func (f *Fetch) Prepare(ctx context.Context, job *pipeline.Job) error {
	if job.Recipe.Model.Path == "" {
		return nil
	}
	_, err := f.resolve(ctx, job, f.checkTerms)
	return err
}

// beforeWeights judges a repository before its weights are fetched: the licence allows what the recipe publishes, and the
// places can take it.
func (f *Fetch) beforeWeights(ctx context.Context) checkFunc {
	return func(job *pipeline.Job, s *hub.Snapshot) error {
		if err := f.checkTerms(job, s); err != nil || job.Recipe.Model.Path != "" {
			return err
		}
		stages, err := New(job.Recipe)
		if err != nil {
			return err
		}
		if err := Find[*Publish](stages).ready(ctx, job); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		return nil
	}
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
	o.Mirrors, o.MinSpeed = f.Mirrors, f.MinSpeed
	return o, nil
}

// digestsFile remembers the digests of files, in the store.
const digestsFile = "digests.json"

// Resolve finds the checkpoint without reading it.
func (f *Fetch) Resolve(ctx context.Context, job *pipeline.Job) (*hub.Snapshot, error) {
	return f.resolve(ctx, job, nil)
}

// resolve is Resolve with a check before weights are fetched, whose error it gives as it is; nil for none.
func (f *Fetch) resolve(ctx context.Context, job *pipeline.Job, check checkFunc) (*hub.Snapshot, error) {
	ref, o, err := f.ref(job)
	if err != nil {
		return nil, err
	}
	refused := f.asked(job, check, &o)
	s, err := hub.Resolve(ctx, ref, o)
	if err = cmp.Or(*refused, modelError(ref, err)); err != nil {
		return nil, err
	}
	f.as(job, s)
	return s, nil
}

// Skeleton finds the checkpoint, and of a repository that is not in the cache the small files and the headers only.
func (f *Fetch) Skeleton(ctx context.Context, job *pipeline.Job) (*hub.Skeleton, error) {
	return f.skeleton(ctx, job, nil)
}

// skeleton is Skeleton with a check before headers are fetched, as that of resolve.
func (f *Fetch) skeleton(ctx context.Context, job *pipeline.Job, check checkFunc) (*hub.Skeleton, error) {
	ref, o, err := f.ref(job)
	if err != nil {
		return nil, err
	}
	refused := f.asked(job, check, &o)
	s, err := hub.Headers(ctx, ref, o)
	if err = cmp.Or(*refused, modelError(ref, err)); err != nil {
		return nil, err
	}
	f.as(job, &s.Snapshot)
	return s, nil
}

// checkFunc judges a checkpoint of which the small files are here.
type checkFunc func(job *pipeline.Job, s *hub.Snapshot) error

// asked has the hub's client ask check, and tells what it has answered: its error names its own place in the recipe, which
// the client does not know.
func (f *Fetch) asked(job *pipeline.Job, check checkFunc, o *hub.Options) (refused *error) {
	refused = new(error)
	if check != nil {
		o.Check = func(s *hub.Snapshot) error {
			f.as(job, s)
			*refused = check(job, s)
			return *refused
		}
	}
	return refused
}

// modelError says that what is wrong is the model that the recipe names.
func modelError(ref hub.Ref, err error) error {
	if ref.Path != "" || err == nil {
		return err
	}
	return fmt.Errorf("model: %w", err)
}

// as gives a copy the names of what it is a copy of.
func (f *Fetch) as(job *pipeline.Job, s *hub.Snapshot) {
	if f.Local != "" {
		s.Repo, s.Revision, s.Source = job.Recipe.Model.Repo, job.Recipe.Model.Revision, ""
		if f.Source == hub.ModelScope {
			s.Source = hub.ModelScope
		}
	}
}

// ref is where the checkpoint is.
func (f *Fetch) ref(job *pipeline.Job) (hub.Ref, hub.Options, error) {
	m := job.Recipe.Model
	if f.Local != "" {
		return hub.Ref{Path: f.Local}, hub.Options{}, nil
	}
	if m.Path != "" {
		return hub.Ref{Path: job.Recipe.Resolve(m.Path)}, hub.Options{}, nil
	}
	o, err := f.hub(job)
	return hub.Ref{Repo: m.Repo, Revision: m.Revision}, o, err
}

// hub says how the hub is asked.
func (f *Fetch) hub(job *pipeline.Job) (hub.Options, error) {
	o, err := f.options()
	o.Client = f.Client
	o.Progress = func(file string, done, total int64) { job.Limits.Report("fetch", file, done, total) }
	return o, err
}

// hubOf says how a job asks the hub.
func hubOf(job *pipeline.Job) (hub.Options, error) {
	f := NewFetch()
	if err := job.Recipe.Stages["fetch"].Decode(f); err != nil {
		return hub.Options{}, err
	}
	return f.hub(job)
}
