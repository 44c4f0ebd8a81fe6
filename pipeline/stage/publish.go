package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Publish publishes the verified package to every place that the recipe names, or to dist/<name> next to the recipe if it
// names none. All places are updated together, see [publish.All].
type Publish []publish.Target

// String implements [pipeline.Stage].
func (*Publish) String() string { return "publish" }

// Validate implements [pipeline.Validator].
func (p *Publish) Validate(ctx context.Context, r *Run) error {
	_, err := p.places(ctx, r)
	return err
}

// Prepare implements [pipeline.Preparer]: it checks that every place could accept the package now. For a repository, [Fetch]
// checks that once the licence is known.
func (p *Publish) Prepare(ctx context.Context, r *Run) error {
	if r.Recipe.Model.Path == "" {
		return nil
	}
	return p.ready(ctx, r)
}

// ready returns an error that names the places which could not accept the package.
func (p *Publish) ready(ctx context.Context, r *Run) error {
	places, could, err := p.Open(ctx, r)
	if err != nil {
		return err
	}
	return publish.Ready(ctx, places, could)
}

// Open opens the places of the package; could reports whether the package in a place may be the one that the run makes.
func (p *Publish) Open(ctx context.Context, r *Run) (places []publish.Place, could func(*manifest.Manifest) bool, err error) {
	if places, err = p.places(ctx, r); err != nil {
		return nil, nil, err
	}
	recipe, err := effective(*r.Recipe, r.Options)
	return places, func(m *manifest.Manifest) bool { return m.Name == r.Recipe.Name && sameRecipe(m.Recipe, recipe) }, err
}

// sameRecipe reports whether two effective recipes may give the same package. It ignores revisions and templates, because the
// recorded recipe contains their resolved values.
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

// Targets are the entries of the recipe; the default if it has none.
func (p *Publish) Targets(r *Run) Publish {
	if len(*p) == 0 {
		return Publish{{Dir: filepath.ToSlash(filepath.Join("dist", r.Recipe.Name))}}
	}
	return *p
}

// places opens the places of the job's package. Until the commit of the model is known, a stand-in takes its place, which serves
// to check the entries.
func (p *Publish) places(ctx context.Context, r *Run) ([]publish.Place, error) {
	v, err := p.values(ctx, r)
	if err != nil {
		return nil, err
	}
	places, err := publish.Places(p.Targets(r), r.Recipe.Dir, v)
	return places, entryError(r, err)
}

// values are those of the placeholders.
func (p *Publish) values(ctx context.Context, r *Run) (publish.Values, error) {
	m := r.Recipe.Model
	v := publish.Values{Name: r.Recipe.Name, Commit: r.commit, Revision: m.Revision, Version: Version}
	dated := slices.ContainsFunc(p.Targets(r), func(t publish.Target) bool { return t.Uses(publish.DateWord) })
	if m.Repo != "" && r.commit == "" {
		v.Commit = digest.Of([]byte(m.Repo + "@" + m.Revision)).Hex()[:40] // other models have others
		v.Date = time.DateOnly
		return v, nil
	}
	if !dated || r.day != "" {
		v.Date = r.day
		return v, nil
	}
	o, err := r.Fetch.hub(&r.Limits)
	if err != nil {
		return v, err
	}
	s := manifest.Source{Repo: m.Repo, Revision: r.commit}
	if r.Fetch.Source == hub.ModelScope {
		s.Hub = manifest.ModelScope
	}
	if r.day, err = publish.DateOf(ctx, s, o); err != nil {
		return v, r.Recipe.Stages["publish"].Errorf("", "%v", err)
	}
	v.Date = r.day
	return v, nil
}

// entryError gives an error on a publish entry its place in the recipe.
func entryError(r *Run, err error) error {
	if e := (*publish.EntryError)(nil); errors.As(err, &e) {
		return r.Recipe.Stages["publish"].Errorf(fmt.Sprintf("[%d]", e.Entry), "%v", e.Err)
	}
	return err
}

// Places names where the package goes, as far as that is known.
func (p *Publish) Places(ctx context.Context, r *Run) ([]string, error) {
	places, err := p.places(ctx, r)
	names := make([]string, len(places))
	for i, s := range places {
		names[i] = s.String()
	}
	return names, err
}

// Run implements [pipeline.Stage].
func (p *Publish) Run(ctx context.Context, r *Run) error {
	pkg, err := place.Open(r.Package())
	if err != nil {
		return err
	}
	if r.Signature.Made() {
		pkg.Signature = filepath.Join(r.Signature.Path, manifest.SignatureName)
	}
	places, err := p.places(ctx, r)
	if err != nil {
		return err
	}
	if r.DryRun {
		r.Changes, err = publish.Changes(ctx, places, pkg)
		return entryError(r, err)
	}
	r.Published, err = publish.All(ctx, places, pkg)
	if rerr := recordReceipts(ctx, r.Store, r.Recipe.Name, r.Published); rerr != nil {
		err = errors.Join(err, fmt.Errorf("receipts: %w", rerr))
	}
	if err == nil {
		r.Shown, err = publish.ShownAt(places, pkg, r.Published)
	}
	// Publishing compares every byte; a difference may be damage in our cache.
	if errors.Is(err, tensor.ErrCorrupt) && pkg.Manifest.VerifyFiles(ctx, pkg.Dir) != nil && ctx.Err() == nil {
		err = errors.Join(err, os.RemoveAll(r.Verdict.Path))
		return fmt.Errorf("the cache was damaged and the entry was removed; run the command again: %w", err)
	}
	return entryError(r, err)
}
