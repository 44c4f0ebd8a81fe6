package fleet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/recipes"
)

// Resolved is a fleet whose repositories are known and whose recipes are loaded.
type Resolved struct {
	Plan *flow.Plan
	// Runs are the packages of every repository, without a store.
	Runs [][]*stage.Run

	fleet  *Fleet
	limit  pipeline.Limits
	names  map[string]string // of packages, in lower case, to their models
	places map[string]string // to the names of packages
}

// Resolve finds the repositories and loads and checks their recipes; l are the limits that packages are planned with. Mistakes in
// the fleet or in a recipe have positions.
func (f *Fleet) Resolve(ctx context.Context, l pipeline.Limits) (*Resolved, error) {
	code, err := pipeline.Code()
	if err != nil {
		return nil, err
	}
	r := &Resolved{fleet: f, limit: l, names: map[string]string{}, places: map[string]string{}, Plan: &flow.Plan{
		Frame: flow.Frame{
			Release: f.Name, Code: code, Store: f.Store, Channel: f.Channel, Queues: f.Queues, VerifyOn: f.VerifyOn,
			Heartbeat: time.Duration(f.Heartbeat), Attempts: int32(f.Attempts),
		},
		OnFailure: f.OnFailure, Parallel: f.Parallel, Recipes: map[string]flow.Recipe{},
	}}
	var errs []error
	for i := range f.Repositories {
		errs = append(errs, r.addEntry(ctx, i))
		if len(r.Plan.Repositories) > maxRepositories {
			return nil, f.doc.Errorf(fmt.Sprintf("repositories[%d]", i), "the release has more than %d repositories; split it", maxRepositories)
		}
	}
	if err := recipes.Join(errs...); err != nil {
		return nil, err
	}
	return r, r.checkSize()
}

// maxPlan bounds the plan as JSON in bytes: a payload of the server has two megabytes.
const maxPlan = 1 << 20

func (r *Resolved) checkSize() error {
	b, err := json.Marshal(r.Plan)
	if err == nil && len(b) > maxPlan {
		return r.fleet.doc.Errorf("repositories", "the plan of the release has %d bytes, the limit is %d; split the release", len(b), maxPlan)
	}
	return err
}

// addEntry adds the repositories of an entry.
func (r *Resolved) addEntry(ctx context.Context, i int) error {
	e, at := &r.fleet.Repositories[i], fmt.Sprintf("repositories[%d]", i)
	repos, err := r.fleet.repositories(ctx, e)
	if err != nil {
		if errors.As(err, new(*recipes.Error)) {
			return err
		}
		return r.fleet.doc.Errorf(at+".match", "%v", err)
	}
	if err := r.load(i); err != nil {
		return err
	}
	for _, repo := range repos {
		if err := r.add(ctx, i, repo); err != nil {
			return err
		}
	}
	return nil
}

// load reads the text of an entry's recipe once.
func (r *Resolved) load(i int) error {
	e := &r.fleet.Repositories[i]
	if _, ok := r.Plan.Recipes[e.Recipe]; ok {
		return nil
	}
	if !isFile(e.Recipe) {
		b, err := recipes.ReadShipped(e.Recipe)
		r.Plan.Recipes[e.Recipe] = flow.Recipe{File: filepath.Join("recipes", e.Recipe+".yaml"), Text: string(b)}
		return err
	}
	file, err := filepath.Abs(r.fleet.within(e.Recipe))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return r.fleet.doc.Errorf(fmt.Sprintf("repositories[%d].recipe", i), "%v", err)
	}
	r.Plan.Recipes[e.Recipe] = flow.Recipe{File: file, Text: string(b)}
	return nil
}

// repositories returns the repositories of an entry; an empty name stands for the model of the recipe.
func (f *Fleet) repositories(ctx context.Context, e *Entry) ([]string, error) {
	if e.Match == "" {
		return []string{e.Repo}, nil
	}
	list, where, err := f.candidates(ctx, e)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(repo string) bool {
		matches := func(p string) bool { ok, _ := path.Match(p, repo); return ok }
		return !matches(e.Match) || slices.ContainsFunc(e.Except, matches)
	})
	slices.Sort(list)
	if list = slices.Compact(list); len(list) == 0 {
		return nil, fmt.Errorf("%q matches no repository %s", e.Match, where)
	}
	return list, nil
}

// candidates returns the repositories that a pattern is applied to, and where they come from.
func (f *Fleet) candidates(ctx context.Context, e *Entry) (list []string, where string, err error) {
	if e.From == "" {
		owner, _, _ := strings.Cut(e.Match, "/")
		o, err := hub.OptionsFromEnv()
		if err != nil {
			return nil, "", err
		}
		list, err = hub.List(ctx, owner, o)
		return list, "of the hub", err
	}
	b, err := os.ReadFile(f.within(e.From))
	if err != nil {
		return nil, "", err
	}
	list, err = parseList(b)
	if err != nil {
		err = fmt.Errorf("%s:%w", e.From, err)
	}
	return list, "of " + e.From, err
}

// parseList reads a repository from each line; empty lines and those that begin with # are skipped.
func parseList(b []byte) (list []string, err error) {
	s := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(b, []byte("\ufeff"))))
	for n := 1; s.Scan(); n++ {
		repo := strings.TrimSpace(s.Text())
		if repo == "" || strings.HasPrefix(repo, "#") {
			continue
		}
		if err := hub.CheckRepo(repo); err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		list = append(list, repo)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

// add adds a repository with its packages.
func (r *Resolved) add(ctx context.Context, i int, repo string) error {
	e := &r.fleet.Repositories[i]
	text := r.Plan.Recipes[e.Recipe]
	set := slices.Clone(e.Set)
	if repo != "" {
		set = append(set, fmt.Sprintf("model.repo=%q", repo))
	}
	if e.Revision != "" {
		set = append(set, fmt.Sprintf("model.revision=%q", e.Revision))
	}
	base, err := recipes.Load([]byte(text.Text), text.File, stage.Sections(), set...)
	if err != nil {
		return err
	}
	set = append(set, e.rename(base, repo)...)
	rec, err := recipes.Load([]byte(text.Text), text.File, stage.Sections(), set...)
	if err != nil {
		return err
	}
	all, err := rec.Expand()
	if err != nil {
		return err
	}
	out := flow.Repository{Model: cmp.Or(rec.Model.Repo, rec.Model.Path), Recipe: e.Recipe, Set: set, Part: e.Part, Queues: e.Queues}
	var runs []*stage.Run
	for j, v := range all {
		if name := nameOf(base, j); len(e.Variants) > 0 && !slices.Contains(e.Variants, name) {
			continue
		}
		x, err := r.run(ctx, i, v)
		if err != nil {
			return err
		}
		runs = append(runs, x)
		out.Packages = append(out.Packages, v.Name)
	}
	for j, name := range e.Variants {
		if known := packageNames(base); !slices.Contains(known, name) {
			at := fmt.Sprintf("repositories[%d].variants[%d]", i, j)
			return r.fleet.doc.Errorf(at, "the recipe makes no package %.80q%s; it makes %s", name, suggestion(name, known), strings.Join(known, ", "))
		}
	}
	out.Shared, err = shared(runs)
	if err != nil {
		return err
	}
	out.ID = r.id(out.Model, out.Packages[0])
	r.Plan.Repositories, r.Runs = append(r.Plan.Repositories, out), append(r.Runs, runs)
	return nil
}

// id is unique in the release.
func (r *Resolved) id(model, first string) string {
	taken := func(o flow.Repository) bool { return o.ID == model }
	if slices.ContainsFunc(r.Plan.Repositories, taken) {
		return model + ":" + first // names of packages are unique
	}
	return model
}

// nameOf is the name of the package at an index of an expanded recipe: 0 is the recipe itself.
func nameOf(r *recipes.Recipe, i int) string {
	if i == 0 {
		return r.Name
	}
	return r.Variants[i-1].Name
}

func packageNames(r *recipes.Recipe) (names []string) {
	for i := range 1 + len(r.Variants) {
		names = append(names, nameOf(r, i))
	}
	return names
}

// rename returns the overrides that give the packages of a recipe their names.
func (e *Entry) rename(base *recipes.Recipe, repo string) (set []string) {
	pattern := e.Package
	if pattern == "" && e.Match != "" {
		pattern = "{model}-{name}"
	}
	if pattern == "" {
		return nil
	}
	owner, model := "", strings.ToLower(path.Base(cmp.Or(repo, base.Model.Repo, filepath.ToSlash(base.Model.Path))))
	if o, _, ok := strings.Cut(cmp.Or(repo, base.Model.Repo), "/"); ok {
		owner = strings.ToLower(o)
	}
	for i := range 1 + len(base.Variants) {
		key := "name"
		if i > 0 {
			key = fmt.Sprintf("variants[%d].name", i-1)
		}
		name := strings.NewReplacer("{name}", nameOf(base, i), "{model}", model, "{owner}", owner).Replace(pattern)
		set = append(set, fmt.Sprintf("%s=%q", key, name))
	}
	return set
}

// run checks a package as far as is possible without its model: the options, its name and its places.
func (r *Resolved) run(ctx context.Context, i int, v *recipes.Recipe) (*stage.Run, error) {
	l := r.limit
	l.Memory = int64(v.Limits.Memory)
	x, err := stage.New(v, l)
	if x != nil { // the key of a signature is where publish workers are
		sign := func(s pipeline.Stage[*stage.Run]) bool { return s.String() == x.Sign.String() }
		err = recipes.Join(err, pipeline.Validate(ctx, x, slices.DeleteFunc(x.Stages(), sign)))
	}
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("repositories[%d]", i)
	if len(x.Publish) == 0 {
		return nil, r.fleet.doc.Errorf(at, "%s would go to a directory of the worker; name a place with publish in the recipe, or with set", v.Name)
	}
	places, err := x.Publish.Places(ctx, x)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(v.Name) // names become directories, and those ignore case on some systems
	if model, ok := r.names[name]; ok {
		return nil, r.fleet.doc.Errorf(at, "%s is the name of a package of %s too; use package to tell them apart", v.Name, model)
	}
	r.names[name] = cmp.Or(v.Model.Repo, v.Model.Path)
	for _, p := range places {
		if other, ok := r.places[p]; ok {
			return nil, r.fleet.doc.Errorf(at, "%s and %s would both go to %s; {name} in a place tells packages apart", other, v.Name, p)
		}
		r.places[p] = v.Name
	}
	return x, nil
}

// shared lists what several packages need: the checkpoint with everything that needs no weights, calibration text, and
// sensitivities. Packages with equal options share.
func shared(runs []*stage.Run) ([][]flow.Shared, error) {
	rounds := []struct {
		until string
		needs func(*stage.Run) bool
		of    func(*stage.Run) []any
	}{
		{"rewrite", func(*stage.Run) bool { return true }, func(x *stage.Run) []any {
			return []any{x.Fetch, x.Rewrite, x.Recipe.Target}
		}},
		{"calibrate", func(x *stage.Run) bool { _, skip := x.Calibrate.Skip(x); return !skip }, func(x *stage.Run) []any {
			return []any{x.Fetch, x.Rewrite, x.Calibrate}
		}},
		{"allocate", func(x *stage.Run) bool { return x.Quantize.Budget != nil }, func(x *stage.Run) []any {
			return []any{x.Fetch, x.Rewrite, x.Calibrate, x.Recipe.Target, quant.Untuned(x.Quantize.Method), x.Quantize.Scale}
		}},
	}
	var out [][]flow.Shared
	for _, round := range rounds {
		var list []flow.Shared
		var keys []digest.Digest
		for _, x := range runs {
			if !round.needs(x) {
				continue
			}
			b, err := json.Marshal(round.of(x))
			if err != nil {
				return nil, err
			}
			key := digest.Of(b)
			if i := slices.Index(keys, key); i >= 0 {
				list[i].For = append(list[i].For, x.Recipe.Name)
				continue
			}
			keys = append(keys, key)
			list = append(list, flow.Shared{Until: round.until, Lead: x.Recipe.Name, For: []string{x.Recipe.Name}})
		}
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	return out, nil
}
