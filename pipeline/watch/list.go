package watch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/recipes"
)

// Version is the only version of watch lists that this program reads.
const Version = 1

// Bounds and default of the time between two polls, and the largest number of entries of a list.
const (
	DefaultInterval = 15 * time.Minute
	minInterval     = time.Minute
	maxInterval     = 30 * 24 * time.Hour
	maxEntries      = 1000
)

// A List names the repositories to watch.
type List struct {
	// Interval lies between two polls.
	Interval time.Duration
	// State is the path of the state file.
	State   string
	Entries []Entry
}

// An Entry is one repository and its recipe.
type Entry struct {
	// Repo is "org/name".
	Repo string `json:"repo"`
	// Revision is a branch or tag.
	Revision string `json:"revision"`
	// Recipe is the name of a shipped recipe, or a path relative to the list, as it is written there.
	Recipe string `json:"recipe"`
	// Set replaces values of the recipe, as --set does.
	Set []string `json:"set"`

	file string // Recipe as a path from the working directory; empty for a shipped one
}

// String is repo@revision.
func (e Entry) String() string { return e.Repo + "@" + e.Revision }

// Source is the recipe as [recipes.LoadFile] or [recipes.ReadShipped] wants it.
func (e Entry) Source() string { return cmp.Or(e.file, e.Recipe) }

// Overrides are those of the list, and those that point the recipe to a commit.
func (e Entry) Overrides(commit string) []string {
	// In quotes, because some commits and names could be read as numbers.
	return append(slices.Clone(e.Set), fmt.Sprintf("model.repo=%q", e.Repo), fmt.Sprintf("model.revision=%q", commit))
}

// same reports whether two entries ask for the same.
func (e Entry) same(o Entry) bool {
	return e.Repo == o.Repo && e.Revision == o.Revision && e.Recipe == o.Recipe && slices.Equal(e.Set, o.Set)
}

// interval is written as "15m" or "1h30m".
type interval time.Duration

func (i *interval) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	if err != nil || d < minInterval || d > maxInterval {
		return fmt.Errorf("must be a time from 1m to 720h, such as 15m or 1h30m, not %.40q", b)
	}
	*i = interval(d)
	return nil
}

// MarshalJSON writes the form that UnmarshalText reads.
func (i interval) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(i).String()) }

// ReadList reads a watch list. What is wrong in it is a [recipes.Error] with line and column.
func ReadList(path string) (*List, error) {
	doc, err := recipes.ReadDocument(path)
	if err != nil {
		return nil, err
	}
	return readList(doc, path)
}

func readList(doc recipes.Section, path string) (*List, error) {
	var raw struct {
		Version  int      `json:"version"`
		Interval interval `json:"interval"`
		State    string   `json:"state"`
		Watch    []Entry  `json:"watch"`
	}
	raw.Interval = interval(DefaultInterval)
	if err := doc.Decode(&raw); err != nil {
		return nil, err
	}
	switch {
	case raw.Version != Version:
		return nil, doc.Errorf("version", "must be %d, the only version this program reads", Version)
	case len(raw.Watch) == 0:
		return nil, doc.Errorf("watch", "must list what is watched, such as {repo: Qwen/Qwen3-0.6B, recipe: qwen3}")
	case len(raw.Watch) > maxEntries:
		return nil, doc.Errorf("watch", "must be at most %d", maxEntries)
	}
	dir := filepath.Dir(path)
	l := &List{Interval: time.Duration(raw.Interval), State: strings.TrimSuffix(path, filepath.Ext(path)) + ".state.json"}
	if raw.State != "" {
		l.State = within(dir, raw.State)
	}
	for i, e := range raw.Watch {
		at := fmt.Sprintf("watch[%d]", i)
		e.Revision = cmp.Or(e.Revision, "main")
		switch {
		case e.Repo == "":
			return nil, doc.Errorf(at+".repo", "is missing; it is a Hugging Face repository such as Qwen/Qwen3-0.6B")
		case e.Recipe == "":
			return nil, doc.Errorf(at+".recipe", "is missing; it is a file, or one of the shipped recipes")
		}
		if err := (hub.Ref{Repo: e.Repo}).Check(); err != nil {
			return nil, doc.Errorf(at+".repo", "%v", err)
		}
		if err := (hub.Ref{Repo: e.Repo, Revision: e.Revision}).Check(); err != nil {
			return nil, doc.Errorf(at+".revision", "%v", err)
		}
		if j := slices.IndexFunc(l.Entries, e.same); j >= 0 {
			return nil, doc.Errorf(at, "is the same as watch[%d]", j)
		}
		if ext := filepath.Ext(e.Recipe); ext == ".yaml" || ext == ".yml" || strings.ContainsAny(e.Recipe, `/\`) {
			e.file = within(dir, e.Recipe)
		} else if !slices.Contains(recipes.Shipped(), e.Recipe) {
			return nil, doc.Errorf(at+".recipe", "%.60q is neither a .yaml file nor one of the shipped recipes: %s", e.Recipe, strings.Join(recipes.Shipped(), ", "))
		}
		l.Entries = append(l.Entries, e)
	}
	return l, nil
}

func within(dir, path string) string {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
