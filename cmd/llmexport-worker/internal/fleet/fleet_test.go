package fleet

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/llmexport/llmexport/cmd/llmexport-worker/internal/flow"
	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/recipes"
)

const tiny = "../../../../testdata/tiny-qwen3"

// head begins a fleet file that is right so far.
const head = "version: 1\nname: phones-2026.11\nstore: /mnt/store\n"

func TestMistakes(t *testing.T) {
	t.Parallel()
	one := head + "repositories: [{repo: org/a, recipe: demo}]\n"
	for _, tc := range []struct{ text, want string }{
		{"version: 2\nname: a\n", "fleet.yaml:1:10: version: must be 1"},
		{one + "chanel: stable\n", "fleet.yaml:5:1: chanel: unknown key; did you mean channel?"},
		{strings.Replace(one, "phones-2026.11", "'a b'", 1), "fleet.yaml:2:7: name: must be letters"},
		{strings.Replace(one, "store: /mnt/store\n", "", 1), "store: is missing"},
		{one + "channel: Stable\n", `fleet.yaml:5:10: channel: "Stable" cannot name a channel`},
		{one + "on_failure: ignore\n", "fleet.yaml:5:13: on_failure: must be hold, skip or stop"},
		{one + "parallel: 0\n", "fleet.yaml:5:11: parallel: must be from 1 to 500, not 0"},
		{one + "attempts: 0\n", "attempts: must be from 1 to 1000"},
		{one + "heartbeat: 1s\n", "fleet.yaml:5:12: heartbeat: must be a time from 5s to 1h"},
		{one + "heartbeat: 60\n", "heartbeat: must be a string"},
		{one + "queues: {compte: big}\n", "queues.compte: unknown key; did you mean compute?"},
		{one + "queues: {compute: Big}\n", "queues.compute: must be a-z"},
		{one + "verify_on: [arm64, arm64]\n", "verify_on[1]: names arm64 twice"},
		{one + "workers: {count: 0, cores: 4}\n", "workers.count: must be 1 or more"},
		{head, "repositories: must list"},
		{head + "repositories: [{repo: org/a}]\n", "fleet.yaml:4:16: repositories[0].recipe: is missing"},
		{head + "repositories: [{repo: org/a, recipe: dmo}]\n", `"dmo" is neither a .yaml file nor one of the shipped recipes; did you mean demo?`},
		{head + "repositories: [{repo: org/a, match: org/*, recipe: demo}]\n", "has both repo and match"},
		{head + "repositories: [{repo: org/../a, recipe: demo}]\n", "repositories[0].repo: "},
		{head + "repositories: [{match: 'org*', recipe: demo}]\n", "must be a pattern of repositories"},
		{head + "repositories: [{match: '*/a', recipe: demo}]\n", "must begin with the name of an owner"},
		{head + "repositories: [{repo: org/a, from: list.txt, recipe: demo}]\n", "from: goes with match"},
		{head + "repositories: [{repo: org/a, except: [org/b], recipe: demo}]\n", "except: goes with match"},
		{head + "repositories: [{recipe: demo, revision: main}]\n", "revision: goes with repo"},
		{head + "repositories: [{repo: org/a, recipe: demo, package: '{modle}-{name}'}]\n", "has no placeholder {modle}"},
		{head + "repositories: [{repo: org/a, recipe: demo, package: x}]\n", "must contain {name}"},
		{head + "repositories: [{match: org/*, recipe: demo, package: 'x-{name}'}]\n", "must contain {model}"},
		{head + "repositories: [{repo: org/a, recipe: demo, part: 'a b'}]\n", "repositories[0].part: must be letters"},
		{head + "repositories: [{repo: org/a, recipe: demo, queues: {computer: x}}]\n", "repositories[0].queues.computer: unknown key; did you mean compute?"},
		{head + "repositories: []\nparallel: 1000\n", "parallel: must be from 1 to 500"},
	} {
		f, err := Parse([]byte(tc.text), "fleet.yaml")
		if err == nil || f != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\n%v, want %s", tc.text, err, tc.want)
		}
		if !errors.As(err, new(*recipes.Error)) {
			t.Errorf("%v has no position", err)
		}
	}
}

// write writes files and returns their directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const recipe = `version: 1
name: int4
model: {repo: org/any}
quantize: {bits: 4}
publish: [{dir: '/out/{name}', channel: latest}]
variants:
  - {name: int8, quantize: {bits: 8}}
  - {name: small, quantize: {budget: {bpw: 4.5}, method: [gptq]}}
  - {name: gptq, quantize: {method: [gptq]}}
  - {name: other-text, quantize: {method: [gptq]}, calibrate: {seed: 7}}
`

func resolved(t *testing.T, dir string) (*Resolved, error) {
	t.Helper()
	f, err := Read(filepath.Join(dir, "fleet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return f.Resolve(t.Context(), pipeline.Limits{Threads: 1})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"int.yaml": recipe,
		"list.txt": "# ours\norg/Tiny-0.6B\norg/Tiny-1.7B\n\norg/Tiny-1.7B-Base\nothers/Tiny-1B\n",
		"fleet.yaml": head + `channel: stable
queues: {compute: big}
repositories:
  - {match: org/Tiny-*, from: list.txt, except: ['*/*-Base'], recipe: int.yaml, part: tiny}
  - {repo: org/Large, revision: v2, recipe: int.yaml, variants: [int8], package: 'large-{name}', set: [verify.enabled=false], queues: {compute: huge}}
`})
	r, err := resolved(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range r.Plan.Repositories {
		got = append(got, x.ID+": "+strings.Join(x.Packages, " "))
	}
	want := []string{
		"org/Tiny-0.6B: tiny-0.6b-int4 tiny-0.6b-int8 tiny-0.6b-small tiny-0.6b-gptq tiny-0.6b-other-text",
		"org/Tiny-1.7B: tiny-1.7b-int4 tiny-1.7b-int8 tiny-1.7b-small tiny-1.7b-gptq tiny-1.7b-other-text",
		"org/Large: large-int8",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	a := "tiny-0.6b-"
	rounds := [][]flow.Shared{
		{{Until: "rewrite", Lead: a + "int4", For: []string{a + "int4", a + "int8", a + "small", a + "gptq", a + "other-text"}}},
		{
			{Until: "calibrate", Lead: a + "small", For: []string{a + "small", a + "gptq"}},
			{Until: "calibrate", Lead: a + "other-text", For: []string{a + "other-text"}},
		},
		{{Until: "allocate", Lead: a + "small", For: []string{a + "small"}}},
	}
	if d := cmp.Diff(rounds, r.Plan.Repositories[0].Shared); d != "" {
		t.Error(d)
	}
	large := r.Plan.Repositories[2]
	if d := cmp.Diff([]string{"verify.enabled=false", `model.repo="org/Large"`, `model.revision="v2"`}, large.Set[:3]); d != "" {
		t.Error(d)
	}
	if len(r.Runs[2]) != 1 || r.Runs[2][0].Verify.Enabled || r.Runs[2][0].Recipe.Name != "large-int8" {
		t.Errorf("%+v", r.Runs[2])
	}
	if x := r.Plan.Recipes["int.yaml"]; x.Text != recipe || x.File != filepath.Join(dir, "int.yaml") {
		t.Errorf("%+v", x)
	}
}

func TestResolveMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ entries, want string }{
		{"{repo: org/a, recipe: none.yaml}", "fleet.yaml:4:38: repositories[0].recipe: "},
		{"{repo: org/a, recipe: int.yaml, variants: [int9]}", `variants[0]: the recipe makes no package "int9"; did you mean int4?`},
		{"{repo: org/a, recipe: int.yaml}, {repo: org/b, recipe: int.yaml}", "repositories[1]: int4 is the name of a package of org/a too; use package"},
		{"{repo: org/a, recipe: int.yaml, set: ['publish=[{dir: /out/x}]']}", "int4 and int8 would both go to dir /out/x"},
		{"{repo: org/a, recipe: int.yaml, set: ['publish=[]']}", "would go to a directory of the worker"},
		{"{repo: org/a, recipe: int.yaml, set: [quantize.bits=9]}", "quantize.bits"},
		{"{match: org/z*, from: list.txt, recipe: int.yaml}", `"org/z*" matches no repository of list.txt`},
		{"{match: org/*, from: bad.txt, recipe: int.yaml}", "bad.txt:2: "},
		{"{match: org/*, from: absent.txt, recipe: int.yaml}", "repositories[0].match: open "},
	} {
		dir := write(t, map[string]string{
			"int.yaml": recipe, "list.txt": "org/a\n", "bad.txt": "org/a\n../b\n", "fleet.yaml": head + "repositories: [" + tc.entries + "]\n",
		})
		_, err := resolved(t, dir)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.As(err, new(*recipes.Error)) {
			t.Errorf("%s\n%v, want %s", tc.entries, err, tc.want)
		}
	}
}

// A pattern without a list asks the hub, and the plan reads headers only.
func TestEstimate(t *testing.T) {
	h := fakehub.New()
	for _, name := range []string{"org/tiny-a", "org/tiny-b", "org/other"} {
		if _, err := h.Repo(name).CommitDir("main", tiny, nil); err != nil {
			t.Fatal(err)
		}
	}
	h.Repo("org/tiny-broken").Commit("main", map[string][]byte{"config.json": []byte(`{"model_type": "unheard-of"}`), "model.safetensors": []byte("\x02\x00\x00\x00\x00\x00\x00\x00{}")})
	s := h.Start(t)
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	dir := write(t, map[string]string{"int.yaml": recipe, "fleet.yaml": head +
		"workers: {count: 2, cores: 8, price: 0.05}\nrepositories: [{match: org/tiny-*, recipe: int.yaml}]\n"})
	r, err := resolved(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Estimate(t.Context(), func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Repositories) != 3 || e.Refused != 5 || e.CoreHours <= 0 || e.Cost <= 0 || e.Hours < e.CoreHours/16 {
		t.Fatalf("%+v", e)
	}
	a := e.Repositories[0]
	if a.Commit != h.Repo("org/tiny-a").Head("main") || a.Shared["calibrate"] <= 0 || a.Shared["allocate"] <= 0 || a.Packages[0].CoreSeconds["quantize"] <= 0 {
		t.Errorf("%+v", a)
	}
	if got := a.Packages[3].CoreSeconds["calibrate"]; got != 0 {
		t.Errorf("shared text is counted again: %v", got)
	}
	if sent := h.Sent("model.safetensors"); sent > 200_000 {
		t.Errorf("%d bytes of weights were read", sent)
	}
	var b strings.Builder
	if err := e.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"15 packages of 3 repositories", "5 packages cannot be made", "2 machines of 8 cores", "at 0.05",
		"org/tiny-broken", "unheard-of"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the plan lacks %q:\n%s", want, b.String())
		}
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	b, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("fleet.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		`{"version": 1, "name": "a", "store": "/s", "repositories": [{"repo": "org/a", "recipe": "demo"}]}`:                                  true,
		`{"version": 1, "name": "a", "store": "/s", "heartbeat": "90s", "queues": {"compute": "big"}, "repositories": [{"recipe": "demo"}]}`: true,
		`{"version": 2, "name": "a", "store": "/s", "repositories": [{"recipe": "demo"}]}`:                                                   false,
		`{"version": 1, "name": "a", "store": "/s", "repositories": [{"repo": "org/a"}]}`:                                                    false,
		`{"version": 1, "name": "a", "store": "/s", "repositories": []}`:                                                                     false,
		`{"version": 1, "name": "a", "store": "/s", "queue": {}, "repositories": [{"recipe": "demo"}]}`:                                      false,
		`{"version": 1, "name": "a", "store": "/s", "queues": {"x": "y"}, "repositories": [{"recipe": "demo"}]}`:                             false,
		`{"version": 1, "name": "a", "store": "/s", "on_failure": "no", "repositories": [{"recipe": "demo"}]}`:                               false,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := Parse([]byte(text), "fleet.yaml"); (err == nil) != ok {
			t.Errorf("%s: the program says %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "repositories: [{match: org/*, recipe: demo, package: '{owner}-{model}-{name}', queues: {compute: x}}]\nworkers: {count: 1, cores: 2}\n"))
	f.Add([]byte(head + "verify_on: [arm64]\nheartbeat: 1m30s\nrepositories:\n- {repo: org/a, recipe: r.yaml, variants: [x]}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Parse(b, "fleet.yaml")
		if err != nil {
			if x != nil || !errors.As(err, new(*recipes.Error)) {
				t.Fatalf("%v, %v", x, err)
			}
			return
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text, "fleet.yaml")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		second, err := json.Marshal(again)
		if err != nil || string(second) != string(text) {
			t.Fatalf("%s is read as %s, %v", text, second, err)
		}
	})
}

func FuzzList(f *testing.F) {
	f.Add([]byte("org/a\n# b\n\norg/c"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseList(b)
		if err != nil && list != nil {
			t.Fatal(list, err)
		}
		for _, repo := range list {
			if strings.Count(repo, "/") > 1 || strings.Contains(repo, "..") {
				t.Fatalf("%q", repo)
			}
		}
	})
}
