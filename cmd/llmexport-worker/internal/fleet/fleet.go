// Package fleet reads fleet.yaml, which says what a release consists of, and turns it into the plan of a release. [Read] checks
// the file as strictly as a recipe, [Fleet.Resolve] finds the repositories and loads the recipe of each of them, and
// [Resolved.Estimate] predicts time, bytes and cost.
package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/publish/channel"
	"github.com/llmexport/llmexport/recipes"
)

// Version is the only version of fleet files that this program reads.
const Version = 1

// Bounds of a fleet.
const (
	maxEntries      = 2000
	maxRepositories = 5000
	maxParallel     = 500
	maxAttempts     = 1000
	minHeartbeat    = 5 * time.Second
	maxHeartbeat    = time.Hour
)

// Fleet is a fleet file.
type Fleet struct {
	Version int    `json:"version" jsonschema:"required,enum=1" jsonschema_description:"Version of the fleet format"`
	Name    string `json:"name" jsonschema:"required" jsonschema_description:"Name of the release. A release that ended can be started again under its name: what is finished is found."`
	Store   string `json:"store" jsonschema:"required" jsonschema_description:"Shared store: s3://BUCKET/PREFIX or oci://REGISTRY/REPOSITORY or a directory that all workers mount. Workers serve the releases of one store."`
	Channel string `json:"channel,omitempty" jsonschema_description:"Channel of all places; those of the recipes if absent. Channels move once everything in their part is published."`
	// OnFailure is the policy.
	OnFailure flow.Policy `json:"on_failure" jsonschema:"enum=hold,enum=skip,enum=stop" jsonschema_description:"What a failed package means: hold makes the others and leaves the channels of its part; skip moves the channels without it; stop cancels what is not finished."`
	Parallel  int         `json:"parallel" jsonschema:"minimum=1,maximum=500" jsonschema_description:"Number of repositories that are open at the same time."`
	Attempts  int         `json:"attempts" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"Number of attempts of a stage; a lost worker ends an attempt too. Failed verification and refused models are not tried again."`
	Heartbeat Duration    `json:"heartbeat" jsonschema_description:"Time after which a silent worker counts as lost, from 5s to 1h. Longer than a restart of the server takes."`
	// Queues are names of queues by role.
	Queues   map[string]string `json:"queues,omitempty" jsonschema_description:"Names of queues in place of disk, compute, verify and publish."`
	VerifyOn []string          `json:"verify_on,omitempty" jsonschema_description:"Architectures such as arm64: workers of the queue verify-arm64 make every report again, and it must be the same."`
	// Workers are what release plan computes with.
	Workers      *Workers `json:"workers,omitempty" jsonschema_description:"The machines, for release plan."`
	Repositories []Entry  `json:"repositories" jsonschema:"required,minItems=1" jsonschema_description:"What the release consists of."`

	file string
	doc  recipes.Section
}

// Workers are the machines that a plan is computed for.
type Workers struct {
	Count int     `json:"count" jsonschema:"required,minimum=1" jsonschema_description:"Number of machines."`
	Cores int     `json:"cores" jsonschema:"required,minimum=1" jsonschema_description:"Cores of each."`
	Price float64 `json:"price,omitempty" jsonschema:"minimum=0" jsonschema_description:"Price of a core for an hour."`
}

// Entry is one repository, or those that match a pattern, with their recipe.
type Entry struct {
	Repo     string `json:"repo,omitempty" jsonschema_description:"Hugging Face repository such as Qwen/Qwen3-0.6B; the model of the recipe if neither repo nor match is given."`
	Revision string `json:"revision,omitempty" jsonschema_description:"Commit, tag or branch; that of the recipe if absent."`
	Match    string `json:"match,omitempty" jsonschema_description:"Pattern of repositories such as Qwen/Qwen3-*, in which * stands for any characters but a slash."`
	From     string `json:"from,omitempty" jsonschema_description:"File with a repository in each line that match is applied to; the hub is asked if absent."`
	// Except are patterns.
	Except []string `json:"except,omitempty" jsonschema_description:"Patterns of repositories that match leaves out."`
	Recipe string   `json:"recipe" jsonschema:"required" jsonschema_description:"A .yaml file, relative to this one, or the name of a shipped recipe."`
	Set    []string `json:"set,omitempty" jsonschema_description:"Values that replace those of the recipe, as --set does."`
	// Variants are names of packages of the recipe.
	Variants []string `json:"variants,omitempty" jsonschema_description:"Packages of the recipe to make, by their names in the recipe; all if absent."`
	Package  string   `json:"package,omitempty" jsonschema_description:"Name of each package: {name} stands for the name in the recipe, {model} for the repository without its owner, {owner} for the owner, both in lower case."`
	Part     string   `json:"part,omitempty" jsonschema_description:"Part of the release, whose channels move together; entries without one are a part too."`
	// Queues are names of queues by role.
	Queues map[string]string `json:"queues,omitempty" jsonschema_description:"Names of queues, for models that need other machines."`
}

// Duration is written as 90s or 1h30m.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	x, err := time.ParseDuration(string(b))
	if err != nil || x < minHeartbeat || x > maxHeartbeat {
		return fmt.Errorf("must be a time from 5s to 1h, such as 60s or 2m, not %.40q", b)
	}
	*d = Duration(x)
	return nil
}

// MarshalJSON writes the form that UnmarshalText reads.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Default returns the options of a fleet that states none.
func Default() *Fleet {
	return &Fleet{OnFailure: flow.Hold, Parallel: 100, Attempts: 20, Heartbeat: Duration(time.Minute)}
}

// Read reads a fleet file. Mistakes in it are a [recipes.Error] or [recipes.Errors], with positions.
func Read(file string) (*Fleet, error) {
	doc, err := recipes.ReadDocument(file)
	if err != nil {
		return nil, err
	}
	return decode(doc, file)
}

// Parse is Read for a text; file is used in messages and for relative paths.
func Parse(text []byte, file string) (*Fleet, error) {
	doc, err := recipes.ParseDocument(text, file)
	if err != nil {
		return nil, err
	}
	return decode(doc, file)
}

var (
	nameRE  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)
	queueRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)
	wordRE  = regexp.MustCompile(`\{[^{}]*\}`)
)

const (
	nameRule  = "must be letters, digits, '.', '_' and '-', begin and end with a letter or digit, and have at most 64 characters"
	queueRule = "must be a-z, 0-9, '.', '_' and '-', begin and end with a letter or digit, and have at most 64 characters"
)

func decode(doc recipes.Section, file string) (*Fleet, error) {
	f := Default()
	f.file, f.doc = file, doc
	if err := doc.Decode(f); err != nil {
		return nil, err
	}
	if f.Version != Version {
		return nil, doc.Errorf("version", "must be %d, the only version this program reads", Version)
	}
	var errs []error
	mistake := func(wrong bool, path, format string, args ...any) {
		if wrong {
			errs = append(errs, doc.Errorf(path, format, args...))
		}
	}
	mistake(!nameRE.MatchString(f.Name), "name", nameRule+", not %.80q", f.Name)
	mistake(f.Store == "", "store", "is missing; it is what the workers share, such as s3://bucket/llmexport or a directory that all mount")
	if f.Channel != "" {
		if err := channel.CheckName(f.Channel); err != nil {
			mistake(true, "channel", "%v", err)
		}
	}
	policies := []flow.Policy{flow.Hold, flow.Skip, flow.Stop}
	mistake(!slices.Contains(policies, f.OnFailure), "on_failure", "must be hold, skip or stop, not %.40q", string(f.OnFailure))
	mistake(f.Parallel < 1 || f.Parallel > maxParallel, "parallel", "must be from 1 to %d, not %d", maxParallel, f.Parallel)
	mistake(f.Attempts < 1 || f.Attempts > maxAttempts, "attempts", "must be from 1 to %d, not %d", maxAttempts, f.Attempts)
	errs = append(errs, f.checkQueues("queues", f.Queues))
	for i, arch := range f.VerifyOn {
		at := fmt.Sprintf("verify_on[%d]", i)
		mistake(!queueRE.MatchString(arch), at, queueRule+", not %.80q", arch)
		mistake(slices.Contains(f.VerifyOn[:i], arch), at, "names %.80s twice", arch)
	}
	if w := f.Workers; w != nil {
		mistake(w.Count < 1, "workers.count", "must be 1 or more")
		mistake(w.Cores < 1, "workers.cores", "must be 1 or more")
		mistake(w.Price < 0, "workers.price", "must be 0 or more")
	}
	mistake(len(f.Repositories) == 0, "repositories", "must list what the release consists of, such as {repo: Qwen/Qwen3-0.6B, recipe: qwen3}")
	mistake(len(f.Repositories) > maxEntries, "repositories", "must be at most %d; use match for more", maxEntries)
	for i := range f.Repositories {
		errs = append(errs, f.checkEntry(i))
	}
	if err := recipes.Join(errs...); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Fleet) checkQueues(at string, queues map[string]string) error {
	var errs []error
	for role, name := range queues {
		key := at + "." + role
		switch {
		case !slices.Contains(flow.Roles(), role):
			guess := ""
			if g := recipes.Nearest(role, flow.Roles()); g != "" {
				guess = "; did you mean " + g + "?"
			}
			errs = append(errs, f.doc.Errorf(key, "unknown key%s (known keys: %s)", guess, strings.Join(flow.Roles(), ", ")))
		case !queueRE.MatchString(name):
			errs = append(errs, f.doc.Errorf(key, queueRule+", not %.80q", name))
		}
	}
	return recipes.Join(errs...)
}

// checkEntry checks one entry without the recipe and the hub.
func (f *Fleet) checkEntry(i int) error {
	e, at := &f.Repositories[i], fmt.Sprintf("repositories[%d]", i)
	var errs []error
	mistake := func(wrong bool, key, format string, args ...any) {
		if wrong {
			errs = append(errs, f.doc.Errorf(strings.TrimSuffix(at+"."+key, "."), format, args...))
		}
	}
	mistake(e.Repo != "" && e.Match != "", "", "has both repo and match; keep one")
	if e.Repo != "" {
		if err := (hub.Ref{Repo: e.Repo}).Check(); err != nil {
			mistake(true, "repo", "%v", err)
		}
	}
	if e.Revision != "" {
		mistake(e.Repo == "", "revision", "goes with repo")
		if err := hub.CheckRevision(e.Revision); err != nil {
			mistake(true, "revision", "%v", err)
		}
	}
	mistake(e.Match == "" && e.From != "", "from", "goes with match")
	mistake(e.Match == "" && len(e.Except) > 0, "except", "goes with match")
	mistake(e.Match != "" && badPattern(e.Match), "match", "must be a pattern of repositories such as Qwen/Qwen3-*, not %.80q", e.Match)
	owner, _, _ := strings.Cut(e.Match, "/")
	mistake(e.Match != "" && e.From == "" && strings.ContainsAny(owner, "*?["), "match",
		"must begin with the name of an owner, because the hub is asked for its repositories; or name a list with from")
	for j, p := range e.Except {
		mistake(badPattern(p), fmt.Sprintf("except[%d]", j), "must be a pattern of repositories such as */*-Base, not %.80q", p)
	}
	mistake(e.Recipe == "", "recipe", "is missing; it is a .yaml file, or the name of a shipped recipe")
	mistake(e.Recipe != "" && !isFile(e.Recipe) && !slices.Contains(recipes.Shipped(), e.Recipe), "recipe",
		"%.60q is neither a .yaml file nor one of the shipped recipes%s", e.Recipe, suggestion(e.Recipe, recipes.Shipped()))
	mistake(e.Part != "" && !nameRE.MatchString(e.Part), "part", nameRule+", not %.80q", e.Part)
	for _, w := range wordRE.FindAllString(e.Package, -1) {
		mistake(!slices.Contains(words, w), "package", "has no placeholder %.40s; there are %s", w, strings.Join(words, ", "))
	}
	mistake(e.Package != "" && !strings.Contains(e.Package, "{name}") && len(e.Variants) != 1, "package",
		"must contain {name}, because a recipe may make several packages")
	mistake(e.Match != "" && !strings.Contains(cmp.Or(e.Package, "{model}"), "{model}"), "package",
		"must contain {model}, because several repositories may match")
	return recipes.Join(append(errs, f.checkQueues(at+".queues", e.Queues))...)
}

// words are the placeholders of names of packages.
var words = []string{"{name}", "{model}", "{owner}"}

func suggestion(word string, known []string) string {
	if g := recipes.Nearest(word, known); g != "" {
		return "; did you mean " + g + "?"
	}
	return ""
}

func badPattern(p string) bool {
	_, err := path.Match(p, "")
	return err != nil || strings.Count(p, "/") != 1
}

// isFile reports whether a recipe is a file and not a shipped one.
func isFile(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml" || strings.ContainsAny(name, `/\`)
}

// within returns a path of the fleet file as one from the working directory.
func (f *Fleet) within(p string) string {
	p = filepath.FromSlash(p)
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(filepath.Dir(f.file), p)
}
