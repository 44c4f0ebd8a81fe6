package depcheck

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/pipeline/watch"
	"github.com/llmexport/llmexport/recipes"
)

// TestWatchList: what the workflow watches can be read, with its recipes, and the workflow keeps the state where the list
// has it.
func TestWatchList(t *testing.T) {
	l, err := watch.ReadList(filepath.Join(root, ".github", "watch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l.Entries {
		if _, err := recipes.LoadFile(e.Source(), stage.Sections(), e.Overrides(e.Revision)...); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
	dir, err := filepath.Rel(root, filepath.Dir(l.State))
	if err != nil {
		t.Fatal(err)
	}
	workflow := string(read(t, ".github/workflows/model.yml"))
	if n := strings.Count(workflow, "path: "+filepath.ToSlash(dir)+"\n"); n != 2 {
		t.Errorf("the workflow keeps %s in %d steps, want 2", dir, n)
	}
}

// TestWatchDoc: docs/watch.md has every kind of event.
func TestWatchDoc(t *testing.T) {
	doc := string(read(t, "docs/watch.md"))
	for _, kind := range []string{watch.Polled, watch.Problem, watch.Recovered, watch.Skipped, watch.WouldRun, watch.Started, watch.Done, watch.Failed} {
		if !strings.Contains(doc, "`"+kind+"`") {
			t.Errorf("docs/watch.md does not have `%s`", kind)
		}
	}
}
