package about

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/llmexport/llmexport/publish/manifest"
)

const sum = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"

func cardManifest() *manifest.Manifest {
	return &manifest.Manifest{
		Version: manifest.Version, Name: "qwen3-0.6b-int4", Tool: manifest.Tool{Name: "llmexport", Version: "0.1.0"},
		MinimumEngine: "3.6.0", Target: manifest.Target{Engine: "3.6", Backends: []string{"cpu", "opencl"}},
		Source: manifest.Source{Repo: "someone/Qwen3-0.6B", Revision: "0123456789abcdef0123456789abcdef01234567"},
		Recipe: json.RawMessage(`{"version":1,"quantize":{"bits":4,"block":64,"method":["search"]},"note":"a ` + "```" + ` fence"}`),
		Files: []manifest.File{
			{Name: "LICENSE", Role: "license", Size: 11357, SHA256: sum},
			{Name: "README.md", Role: "card", Size: 1, SHA256: sum},
			{Name: "config.json", Role: "config", Size: 412, SHA256: sum},
			{Name: "llm.mnn.weight", Role: "weights", Size: 2_000_000, SHA256: sum},
		},
		Tensors: []manifest.Tensor{
			{Name: "model.embed_tokens.weight", Op: "/embed", Spec: "w8-b64-asym", File: "llm.mnn.weight", Size: 1_000_000, SHA256: sum},
			{Name: "model.embed_tokens.weight", Op: "/lm_head", Spec: "w8-b64-asym", File: "llm.mnn.weight", Size: 1_000_000, SHA256: sum},
			{Name: "model.layers.0.mlp.up_proj.weight", Op: "/up", Spec: "w4-b64-asym", File: "llm.mnn.weight", Offset: 1_000_000, Size: 600_000, SHA256: sum},
			{Name: "model.layers.0.mlp.down_proj.weight", Op: "/down", Spec: "w4-b64-asym", File: "llm.mnn.weight", Offset: 1_600_000, Size: 400_000, SHA256: sum},
		},
		Verified:   true,
		Threads:    []manifest.Threads{{Pack: 8, Safe: []int{1, 2, 4}, Unsafe: []int{9, 14}}, {Pack: 16, Safe: []int{1, 2}}},
		Conditions: []string{"`dynamic_option` stays 2"},
	}
}

func measures() []Measure {
	return []Measure{
		{Name: "perplexity, wikitext-2, window 2048", Value: new(94.48531234), StdErr: 0.75, Limit: "<= 99.2", Outcome: Passed},
		{Name: "mean KL", Value: new(0.0591), Unit: "nats", StdErr: 0.0004, Limit: "<= 0.03", Outcome: Failed},
		{Name: "same top token", Value: new(91.25), Unit: "%"},
	}
}

const sourceCard = `---
# licence of the weights
license: other
license_name: some-research
license_link: https://example.com/LICENSE
language:
- en
- no
pipeline_tag: text-generation
base_model: someone/Qwen3-0.6B-Base
tags: [chat, "1.0", mnn]
model-index:
- name: x
  results: [{task: {type: y}}]
extra_gated_prompt: >-
  Accept this.

  license: not a key
library_name: transformers
---

# The source

<script>alert(1)</script>
`

func TestCard(t *testing.T) {
	tests := map[string]func(in *CardInput){
		"full":       func(in *CardInput) {},
		"modelscope": func(in *CardInput) { in.Manifest.Source.Hub = manifest.ModelScope },
		"unverified": func(in *CardInput) { in.Manifest.Verified = false },
		"bare": func(in *CardInput) {
			m := in.Manifest
			in.SourceCard, in.Report, in.Picture = nil, NewReport(m), ""
			m.Source, m.Recipe, m.Tensors, m.Threads, m.Conditions, m.Target.Backends = manifest.Source{}, nil, nil, nil, nil, nil
		},
		"hostile": func(in *CardInput) {
			in.SourceCard = []byte("---\na: [\n---\n<script>\n")
			in.Manifest.Source.Repo = "x`y: [a](b) <img src=x>\n# title"
			in.Manifest.Conditions = []string{"<b>bold</b> | [link](x)\nsecond line"}
			in.Manifest.Tensors[0].Spec = "a|b"
			in.Report.Metrics[0].Name, in.Report.Notes = "a|b\n<i>", []string{"<b>\n# x"}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			r := report()
			in := CardInput{Manifest: cardManifest(), SourceCard: []byte(sourceCard), Report: &r, Picture: PictureName}
			change(&in)
			card, warnings, err := Card(in)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "README.md", card)
			golden(t, "warnings.txt", []byte(strings.Join(warnings, "\n")+"\n"))
			readHead(t, card)
			again, _, err := Card(in)
			if err != nil || !bytes.Equal(card, again) {
				t.Errorf("the second card differs, %v", err)
			}
		})
	}
}

// readHead decodes the front matter of a card of ours.
func readHead(t testing.TB, card []byte) map[string]any {
	t.Helper()
	_, rest, ok := strings.Cut(string(card), "---\n")
	head, _, ok2 := strings.Cut(rest, "---\n\n# ")
	if !ok || !ok2 {
		t.Fatalf("card has no front matter:\n%s", card)
	}
	var v map[string]any
	if err := yaml.Unmarshal([]byte(head), &v); err != nil {
		t.Fatalf("%v in\n%s", err, head)
	}
	if v["library_name"] != "mnn" {
		t.Fatalf("library_name is %v in\n%s", v["library_name"], head)
	}
	return v
}

func TestFrontMatter(t *testing.T) {
	tests := map[string]struct {
		card string
		kept string // front matter before our own fields; "" when it is dropped or empty
		warn string
	}{
		"none":             {"# Title\n", "", "it is missing"},
		"dash in a key":    {"---\nlanguage:\n- \n-x: mnn\n---\n", "", "line \"-x: mnn\" does not start an entry"},
		"empty file":       {"", "", "it is missing"},
		"empty":            {"---\n---\n", "", "states no licence"},
		"no end":           {"---\nlicense: mit\n", "", "it has no end"},
		"ends at the end":  {"---\nlicense: mit\n---", "license: mit\n", ""},
		"CRLF and BOM":     {"\ufeff---\r\nlicense: mit\r\n---\r\nx", "license: mit\n", ""},
		"order and bytes":  {"---\nz: 1.10\nlicense: 'mit'  # yes\na: no\n---\n", "z: 1.10\nlicense: 'mit'  # yes\na: no\n", ""},
		"bad YAML":         {"---\nlicense: [\n---\n", "", "licence"},
		"twice":            {"---\nlicense: mit\nlicense: x\n---\n", "", "already defined"},
		"list":             {"---\n- license\n---\n", "", "comes before the first entry"},
		"scalar":           {"---\nhello\n---\n", "", "does not start an entry"},
		"flow":             {"---\n{license: mit}\n---\n", "", "does not start an entry"},
		"indented":         {"---\n  license: mit\n---\n", "", "comes before the first entry"},
		"anchor":           {"---\nlicense: &a mit\nb: *a\n---\n", "", "anchors"},
		"two documents":    {"---\nlicense: mit\n...\n---\n", "", "does not start an entry"},
		"string of lines":  {"---\nlicense: \"mit\nb: c\"\n---\n", "", "left out"},
		"tab":              {"---\nlicense:\tmit\n---\n", "", "does not start an entry"},
		"NUL":              {"---\nlicense: m\x00t\n---\n", "", "control characters"},
		"not UTF-8":        {"---\nlicense: m\xfft\n---\n", "", "not UTF-8"},
		"huge":             {"---\nlicense: mit\na: " + strings.Repeat("x", maxParsed) + "\n---\n", "", "the limit is"},
		"huge model-index": {"---\nlicense: mit\nmodel-index:\n" + strings.Repeat("- a\n", maxParsed) + "---\n", "license: mit\n", "model-index"},
		"deep":             {"---\nlicense: mit\na: " + strings.Repeat("[", 30000) + "\n---\n", "", "nested"},
		"deep list":        {"---\nlicense: mit\na:\n- " + strings.Repeat("- ", 30000) + "x\n---\n", "", "nested"},
		"HTML":             {"---\nlicense: <script>\n---\n", "license: <script>\n", ""},
		"odd tags":         {"---\nlicense: mit\ntags: {a: b}\n---\n", "license: mit\n", "tags"},
		"number in tags":   {"---\nlicense: mit\ntags: [a, 1.5]\n---\n", "license: mit\n", "tags"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fm, warnings := cardHead(CardInput{Manifest: cardManifest(), SourceCard: []byte(tc.card), Report: &Report{}})
			kept := fm.without("tags", "base_model", "base_model_relation", "library_name").String()
			if diff := cmp.Diff(tc.kept, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if got := strings.Join(warnings, "\n"); !strings.Contains(got, tc.warn) || (tc.warn == "") != (got == "") {
				t.Errorf("warnings %q, want one with %q", got, tc.warn)
			}
		})
	}
}

func TestYAMLString(t *testing.T) {
	for _, s := range []string{"mnn", "no", "Yes", "null", "1.0", "0x1", "", "a: b", "#x", "- x", "a\"b\\c\nd", "é", "<x>",
		"someone/Qwen3-0.6B", "~", "2024-01-01"} {
		var v map[string]any
		if err := yaml.Unmarshal([]byte("a: "+yamlString(s)+"\n"), &v); err != nil || v["a"] != s {
			t.Errorf("%q was written %s and read as %#v, %v", s, yamlString(s), v["a"], err)
		}
	}
}

func FuzzCard(f *testing.F) {
	seeds, err := filepath.Glob(filepath.Join("testdata", "TestCard", "*", "README.md"))
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds in testdata: %v", err)
	}
	for _, path := range seeds {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(sourceCard))
	f.Add([]byte("---\nscore: .nan\n---\n"))
	f.Fuzz(func(t *testing.T, source []byte) {
		card, _, err := Card(CardInput{Manifest: cardManifest(), SourceCard: source, Report: &Report{}})
		if err != nil {
			t.Fatal(err)
		}
		v := readHead(t, card)
		if v["base_model"] != "someone/Qwen3-0.6B" || v["base_model_relation"] != "quantized" {
			t.Fatalf("base model is %v, %v", v["base_model"], v["base_model_relation"])
		}
		again, warnings, err := Card(CardInput{Manifest: cardManifest(), SourceCard: card, Report: &Report{}})
		if err != nil || !cmp.Equal(v, readHead(t, again), cmpopts.EquateNaNs()) {
			t.Fatalf("a card made from our own card has another head (%q, %v):\n%s", warnings, err, again)
		}
	})
}
