package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/llmexport/llmexport/internal/sealed"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Publish puts the verified package into every place the recipe names; dist/<name> beside the recipe if it names
// none. Places get it together, see [publish.All].
type Publish []publish.Target

// String implements pipeline.Stage.
func (*Publish) String() string { return "publish" }

// Validate implements pipeline.Validator.
func (p *Publish) Validate(job *pipeline.Job) error {
	_, err := p.places(job)
	return err
}

// Prepare implements pipeline.Preparer: every place could take the package now. For a repository [Fetch] asks, once the licence
// is known.
func (p *Publish) Prepare(ctx context.Context, job *pipeline.Job) error {
	if job.Recipe.Model.Path == "" {
		return nil
	}
	return p.ready(ctx, job)
}

// ready reports by an error which place could not take the package.
func (p *Publish) ready(ctx context.Context, job *pipeline.Job) error {
	places, err := p.places(job)
	if err != nil {
		return err
	}
	stages, err := New(job.Recipe)
	if err != nil {
		return err
	}
	recipe, err := EffectiveRecipe(job.Recipe, stages)
	if err != nil {
		return err
	}
	return publish.Ready(ctx, places, func(m *manifest.Manifest) bool {
		return m.Name == job.Recipe.Name && sameRecipe(m.Recipe, recipe)
	})
}

// sameRecipe reports whether two effective recipes may give the same package. Revisions and templates do not count, which
// the recorded recipe has as they were resolved.
func sameRecipe(a, b json.RawMessage) bool {
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	for _, m := range []map[string]any{x, y} {
		for _, key := range []string{"model", "rewrite"} {
			delete(m, key)
		}
	}
	return reflect.DeepEqual(x, y)
}

// places opens the places of the job's package.
func (p *Publish) places(job *pipeline.Job) ([]publish.Place, error) {
	targets := *p
	if len(targets) == 0 {
		targets = Publish{{Dir: filepath.ToSlash(filepath.Join("dist", job.Recipe.Name))}}
	}
	places, err := publish.Places(targets, job.Recipe.Dir, job.Recipe.Name)
	return places, entryError(job, err)
}

// entryError gives an error on a publish entry its place in the recipe.
func entryError(job *pipeline.Job, err error) error {
	if e := (*publish.EntryError)(nil); errors.As(err, &e) {
		return job.Recipe.Stages["publish"].Errorf(fmt.Sprintf("[%d]", e.Entry), "%v", e.Err)
	}
	return err
}

// Places names where the package goes.
func (p *Publish) Places(job *pipeline.Job) ([]string, error) {
	places, err := p.places(job)
	names := make([]string, len(places))
	for i, s := range places {
		names[i] = s.String()
	}
	return names, err
}

// open gives the package that the job has made, the directory of its artifact, and its places.
func (p *Publish) open(job *pipeline.Job) (place.Package, string, []publish.Place, error) {
	verdict, err := job.Artifacts.One(pipeline.Verdict)
	if err != nil {
		return place.Package{}, "", nil, err
	}
	pkg, err := place.Open(filepath.Join(verdict.Path, filesDir))
	if err != nil {
		return pkg, "", nil, err
	}
	places, err := p.places(job)
	return pkg, verdict.Path, places, err
}

// Run implements pipeline.Stage.
func (p *Publish) Run(ctx context.Context, job *pipeline.Job) error {
	pkg, entry, places, err := p.open(job)
	if err != nil {
		return err
	}
	receipts, err := publish.All(ctx, places, pkg)
	for _, r := range receipts {
		job.Artifacts.Add(pipeline.Artifact{Kind: pipeline.Published, Name: string(r.Status), Path: r.Ref, Digest: r.Digest, Size: r.Bytes, Detail: r})
	}
	if rerr := recordReceipts(job, receipts); rerr != nil {
		err = errors.Join(err, fmt.Errorf("receipts: %w", rerr))
	}
	// Publishing compares every byte; what differs may be ours.
	if errors.Is(err, tensor.ErrCorrupt) && pkg.Manifest.VerifyFiles(ctx, pkg.Dir) != nil && ctx.Err() == nil {
		return damaged(entry, err)
	}
	return entryError(job, err)
}

// damaged removes an entry of the store whose bytes have changed while it was in use.
func damaged(entry string, err error) error {
	return fmt.Errorf("the cache was damaged and its entry is removed, run again: %w", errors.Join(err, os.RemoveAll(entry)))
}

// ReceiptsFile is the file of a store with the receipts of every package's last publication, by name.
const ReceiptsFile = "receipts.json"

// keptReceipt is a receipt with a checksum of its own.
type keptReceipt struct {
	place.Receipt
	SHA256 string `json:"sha256"`
}

// keep gives a receipt of a package its checksum.
func keep(name string, r place.Receipt) (keptReceipt, error) {
	sum, err := sealed.Sum(name, r)
	return keptReceipt{r, sum}, err
}

// recordReceipts writes them down; the store is locked.
func recordReceipts(job *pipeline.Job, receipts []place.Receipt) error {
	if len(receipts) == 0 {
		return nil
	}
	path := filepath.Join(job.Store.Dir, ReceiptsFile)
	all := map[string][]keptReceipt{}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		all = map[string][]keptReceipt{} // a record, and not worth failing for
	}
	for name, list := range all { // nor are those that are damaged worth keeping
		all[name] = slices.DeleteFunc(list, func(x keptReceipt) bool {
			again, err := keep(name, x.Receipt)
			return err != nil || again != x
		})
	}
	before, now := all[job.Recipe.Name], make([]keptReceipt, len(receipts))
	for i, r := range receipts {
		same := func(x keptReceipt) bool { return x.Store == r.Store && x.Ref == r.Ref && x.Digest == r.Digest }
		if j := slices.IndexFunc(before, same); j >= 0 && r.Status == place.Unchanged {
			now[i] = before[j] // says how it came there
		} else if now[i], err = keep(job.Recipe.Name, r); err != nil {
			return err
		}
	}
	all[job.Recipe.Name] = now
	text, err := json.MarshalIndent(all, "", "  ")
	if text = append(text, '\n'); err != nil || bytes.Equal(text, b) {
		return err
	}
	return pipeline.WriteFile(path, text)
}

// Preview stands in for [Publish] in a dry run: it says what publishing would change.
type Preview struct {
	*Publish
	// Digest is that of the package, once there is one.
	Digest manifest.Digest
	// Changes is what would change, one for each place.
	Changes []publish.PlaceDiff
}

// Run implements pipeline.Stage.
func (p *Preview) Run(ctx context.Context, job *pipeline.Job) error {
	pkg, _, places, err := p.open(job)
	if err != nil {
		return err
	}
	p.Digest = pkg.Manifest.Digest
	p.Changes, err = publish.Changes(ctx, places, pkg)
	return entryError(job, err)
}
