package watch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmexport/llmexport/recipes"
)

func TestReadList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "models.yaml")
	dir := filepath.Dir(path)
	text := `version: 1
interval: 1h30m
watch:
  - {repo: Qwen/Qwen3-0.6B, recipe: qwen3}
  - repo: org/tiny
    revision: v1.0
    recipe: sub/my.yaml
    set: [quantize.bits=8, "publish=[{dir: out}]"]
`
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := ReadList(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &List{Interval: 90 * time.Minute, State: filepath.Join(dir, "models.state.json"), Entries: []Entry{
		{Repo: "Qwen/Qwen3-0.6B", Revision: "main", Recipe: "qwen3"},
		{Repo: "org/tiny", Revision: "v1.0", Recipe: "sub/my.yaml", Set: []string{"quantize.bits=8", "publish=[{dir: out}]"},
			file: filepath.Join(dir, "sub", "my.yaml")},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Entry{}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if s := got.Entries[0].Source(); s != "qwen3" {
		t.Error(s)
	}
	// A commit that reads as a number stays a text.
	const digits = "1234567890123456789012345678901234567890"
	want2 := []string{"quantize.bits=8", "publish=[{dir: out}]", `model.repo="org/tiny"`, `model.revision="` + digits + `"`}
	if diff := cmp.Diff(want2, got.Entries[1].Overrides(digits)); diff != "" {
		t.Error(diff)
	}
}

func TestReadListRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"empty":         {"", "x.yaml: the file is empty"},
		"version":       {"version: 2\nwatch: []\n", "x.yaml:1:10: version: must be 1"},
		"no version":    {"watch: []\n", "version: must be 1"},
		"no list":       {"version: 1\n", "x.yaml: watch: must list what is watched"},
		"unknown key":   {"version: 1\nwacth: []\n", "x.yaml:2:1: wacth: unknown key; did you mean"},
		"unknown inner": {"version: 1\nwatch:\n  - {repo: a/b, recipe: qwen3, sets: []}\n", "x.yaml:3:32: watch[0].sets: unknown key"},
		"interval":      {"version: 1\ninterval: 5s\nwatch: [{repo: a/b, recipe: qwen3}]\n", "x.yaml:2:11: interval: must be a time from 1m to 720h"},
		"number":        {"version: 1\ninterval: 15\nwatch: [{repo: a/b, recipe: qwen3}]\n", "x.yaml:2:11: interval: must be a string"},
		"no repo":       {"version: 1\nwatch: [{recipe: qwen3}]\n", "x.yaml:2:9: watch[0].repo: is missing"},
		"bad repo":      {"version: 1\nwatch: [{repo: ../b, recipe: qwen3}]\n", "x.yaml:2:16: watch[0].repo: a repository is ORG/NAME, not"},
		"bad revision":  {"version: 1\nwatch: [{repo: a/b, revision: ../x, recipe: qwen3}]\n", "x.yaml:2:31: watch[0].revision: revision"},
		"no recipe":     {"version: 1\nwatch: [{repo: a/b}]\n", "x.yaml:2:9: watch[0].recipe: is missing"},
		"bad recipe":    {"version: 1\nwatch: [{repo: a/b, recipe: qwen33}]\n", "x.yaml:2:29: watch[0].recipe: \"qwen33\" is neither"},
		"twice": {"version: 1\nwatch:\n  - {repo: a/b, recipe: qwen3}\n  - {repo: a/b, revision: main, recipe: qwen3}\n",
			"x.yaml:4:5: watch[1]: is the same as watch[0]"},
		"two documents": {"version: 1\n---\nversion: 1\n", "x.yaml:2:1: a file holds one document"},
		"anchor":        {"version: &a 1\n", "x.yaml:1:10: "},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := recipes.ParseDocument([]byte(tc.text), "x.yaml")
			var l *List
			if err == nil {
				l, err = readList(doc, "x.yaml")
			}
			var re *recipes.Error
			if l != nil || !errors.As(err, &re) || !strings.HasPrefix(err.Error(), "x.yaml") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v\nwant %s", err, tc.want)
			}
		})
	}
}

func FuzzReadList(f *testing.F) {
	for _, s := range []string{
		"version: 1\nwatch: [{repo: a/b, recipe: qwen3}]\n",
		"version: 1\ninterval: 1h\nstate: s.json\nwatch:\n  - {repo: a/b, revision: v1, recipe: x.yaml, set: [a=b]}\n",
		"version: 1\nwatch: {}\n", "interval: null\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		doc, err := recipes.ParseDocument(b, "x.yaml")
		if err != nil {
			return
		}
		l, err := readList(doc, "x.yaml")
		if (l == nil) != (err != nil) {
			t.Fatal(l, err)
		}
		if err == nil && (len(l.Entries) == 0 || l.Interval < minInterval || l.Interval > maxInterval) {
			t.Fatalf("%+v", l)
		}
	})
}
