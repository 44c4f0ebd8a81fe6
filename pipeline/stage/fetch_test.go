package stage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/internal/fakehub"
	"github.com/llmexport/llmexport/internal/hub"
	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/recipes"
)

// fetchOf gives the stage of a recipe with a fetch section.
func fetchOf(t *testing.T, section string) (*Fetch, *Run) {
	t.Helper()
	r, err := recipes.Load([]byte("version: 1\nname: x\nmodel: {repo: org/name}\nfetch: "+section+"\n"), "x.yaml", Sections())
	if err != nil {
		t.Fatal(err)
	}
	run, err := New(r, pipeline.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return &run.Fetch, run
}

// TestFetchToken holds that a recipe sends the token of the environment nowhere else.
func TestFetchToken(t *testing.T) {
	for k, v := range map[string]string{"HF_ENDPOINT": "https://hub.example", "HF_TOKEN": "hf", "HF_HUB_CACHE": t.TempDir(), "HF_HUB_DISABLE_IMPLICIT_TOKEN": "",
		"MODELSCOPE_API_TOKEN": "ms", "MODELSCOPE_ENDPOINT": ""} {
		t.Setenv(k, v)
	}
	for _, c := range []struct {
		section string
		want    hub.Options
	}{
		{"{}", hub.Options{Endpoint: "https://hub.example", Token: "hf"}},
		{"{source: huggingface, endpoint: 'https://HUB.example/'}", hub.Options{Endpoint: "https://HUB.example", Token: "hf"}},
		{"{endpoint: 'https://other.example'}", hub.Options{Endpoint: "https://other.example"}},
		{"{endpoint: 'http://hub.example'}", hub.Options{Endpoint: "http://hub.example"}},
		{"{source: modelscope}", hub.Options{Source: hub.ModelScope, Endpoint: "https://modelscope.cn", Token: "ms"}},
		{"{source: modelscope, endpoint: 'https://hub.example'}", hub.Options{Source: hub.ModelScope, Endpoint: "https://hub.example"}},
	} {
		f, run := fetchOf(t, c.section)
		if err := f.Validate(t.Context(), run); err != nil {
			t.Error(err)
		}
		got, err := f.hub(&run.Limits)
		if err != nil || got.Source != c.want.Source || got.Endpoint != c.want.Endpoint || got.Token != c.want.Token {
			t.Errorf("%s: %v, %v", c.section, got, err)
		}
	}
}

func TestFetchValidate(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		"{source: github}":                                 "x.yaml:4:17: fetch.source: must be huggingface or modelscope",
		"{endpoint: hub.example}":                          "fetch.endpoint: not an http",
		"{endpoint: 'https://me:secret@hub.example'}":      "fetch.endpoint: the address of hub.example has a user",
		"{mirrors: ['https://a.example', 'ftp://secret']}": "fetch.mirrors[1]: not an http",
		"{mirrors: [a, b, c, d, e]}":                       "fetch.mirrors: must be at most 4",
		"{min_speed: -1}":                                  "fetch.min_speed: must be at least 1",
	} {
		f, run := fetchOf(t, section)
		if err := f.Validate(t.Context(), run); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", section, err)
		}
	}
}

// TestFetchOrigin fetches from both hubs, and records the access that they state.
func TestFetchOrigin(t *testing.T) {
	files := map[string][]byte{}
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join("../arch/testdata/llama", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	h := fakehub.New()
	commit := h.Repo("org/name").SetGated("manual").SetPrivate(true).Commit("main", files)
	s := h.Start(t)
	for k, v := range map[string]string{"HF_ENDPOINT": s.URL, "HF_TOKEN": fakehub.Token, "HF_HUB_CACHE": t.TempDir(),
		"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "",
		"HF_HUB_DISABLE_IMPLICIT_TOKEN": "", "MODELSCOPE_API_TOKEN": fakehub.Token, "MODELSCOPE_ENDPOINT": s.URL} {
		t.Setenv(k, v)
	}
	for _, c := range []struct {
		section        string
		private        bool
		gated          string
		source, access string
	}{
		{"{}", true, "manual", "", manifest.Private},
		{"{}", false, "auto", "", manifest.Gated},
		{"{}", false, "", "", ""},
		{"{source: modelscope}", false, "", hub.ModelScope, manifest.Unknown},
	} {
		h.Repo("org/name").SetGated(c.gated).SetPrivate(c.private)

		f, run := fetchOf(t, c.section)
		got, err := f.Resolve(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		o := f.originOf(got)
		if o.Repo != "org/name" || o.Revision != commit || o.Hub != c.source || o.Access != c.access {
			t.Errorf("%+v", o)
		}
	}
}
