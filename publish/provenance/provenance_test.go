package provenance

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

const (
	sumA = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
	sumB = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
	sumC = "2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6"
)

// newPackage writes a package with these files and whatever change does to its manifest.
func newPackage(t *testing.T, files map[string]string, change func(*manifest.Manifest)) string {
	t.Helper()
	dir := t.TempDir()
	m := &manifest.Manifest{
		Version: manifest.Version, Name: "tiny", Tool: manifest.Tool{Name: "llmexport", Version: "1.2.0"},
		MinimumEngine: "3.6.0", Target: manifest.Target{Engine: "3.6"},
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := manifest.HashFile(t.Context(), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == reportName {
			f.Role = reportRole
		}
		m.Files = append(m.Files, f)
	}
	if change != nil {
		change(m)
	}
	m.Sort()
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, manifest.FileName), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOf(t *testing.T) {
	report := fmt.Sprintf(`{"calibration":{"domains":[{"name":"prose.txt","sha256":%q},{"name":"samples","sha256":%q}]}}`, sumA, sumB)
	full := func(m *manifest.Manifest) {
		m.Source = manifest.Source{
			Repo: "someone/Tiny-Qwen3", Revision: "0123456789abcdef0123456789abcdef01234567",
			Files: []manifest.File{{Name: "config.json", Size: 1, SHA256: sumA}, {Name: "sub/a b@c.safetensors", Size: 2, SHA256: sumB}},
		}
		m.Recipe = json.RawMessage(fmt.Sprintf(`{"version":1,"calibrate":{"data":[{"path":"data/prose.txt","sha256":%q,"weight":1e0}]},"verify":{"perplexity":{"text":{"path":"C:\\book.txt","sha256":%q}}}}`, sumA, sumC))
		m.Verified, m.Checks = true, []manifest.Check{{Name: "layout", Passed: true}}
	}
	tests := map[string]struct {
		files  map[string]string
		change func(*manifest.Manifest)
	}{
		"full": {map[string]string{"config.json": "{}", "llm.mnn.weight": "weights", "zz": "", reportName: report}, full},
		"bare": {map[string]string{"config.json": "{}"}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newPackage(t, tc.files, tc.change)
			m, got, err := Of(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if m.Name != "tiny" {
				t.Errorf("manifest of %q", m.Name)
			}
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if _, again, err := Of(t.Context(), newPackage(t, tc.files, tc.change)); err != nil || string(again) != string(got) {
				t.Errorf("another statement of the same package elsewhere: %v", err)
			}
		})
	}
}

func TestOfRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	many := map[string]string{}
	for i := range MaxSubjects {
		many[fmt.Sprintf("f%04d", i)] = ""
	}
	tests := map[string]struct {
		files map[string]string
		after func(t *testing.T, dir string)
		want  error
		text  string
	}{
		"report is no JSON":    {map[string]string{reportName: "{"}, nil, tensor.ErrCorrupt, reportName},
		"text without digest":  {map[string]string{reportName: `{"calibration":{"domains":[{"name":"x","sha256":"../x"}]}}`}, nil, tensor.ErrCorrupt, `"x"`},
		"too many files":       {many, nil, tensor.ErrUnsupported, "1024 files"},
		"report has changed":   {map[string]string{reportName: "{}"}, overwrite(reportName, "[]"), tensor.ErrCorrupt, "the manifest says"},
		"report has grown":     {map[string]string{reportName: "{}"}, overwrite(reportName, "{ }"), tensor.ErrCorrupt, "the manifest says"},
		"report has gone":      {map[string]string{reportName: "{}"}, overwrite(reportName, ""), tensor.ErrCorrupt, reportName},
		"manifest has changed": {map[string]string{"a": ""}, overwrite(manifest.FileName, "{}"), tensor.ErrCorrupt, manifest.FileName},
		"no manifest":          {map[string]string{"a": ""}, overwrite(manifest.FileName, ""), os.ErrNotExist, manifest.FileName},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newPackage(t, tc.files, nil)
			if tc.after != nil {
				tc.after(t, dir)
			}
			m, s, err := Of(t.Context(), dir)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || m != nil || s != nil {
				t.Errorf("got %v, want %v that names %s", err, tc.want, tc.text)
			}
		})
	}
}

// overwrite writes another text, or removes the file for none.
func overwrite(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		err := os.Remove(path)
		if text != "" {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSourceURI(t *testing.T) {
	for want, s := range map[string]manifest.Source{
		"":                                   {},
		"pkg:huggingface/Qwen/Qwen3-0.6B@ab": {Repo: "Qwen/Qwen3-0.6B", Revision: "ab"},
		"pkg:huggingface/gpt2":               {Repo: "gpt2"},
		"pkg:huggingface/a%40b/c%20d@v1%2F2": {Repo: "a@b/c d", Revision: "v1/2"},
		"git+https://www.modelscope.cn/Qwen/Qwen3-0.6B.git@ab": {Hub: manifest.ModelScope, Repo: "Qwen/Qwen3-0.6B", Revision: "ab"},
	} {
		if got := SourceURI(s); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}

// A report that is nested without end is refused before it is read.
func TestDeepReport(t *testing.T) {
	deep := `{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`
	if _, err := parseReport([]byte(deep)); !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), "nested deeper") {
		t.Error(err)
	}
}

// FuzzDependencies: what a report and a recipe say becomes descriptors with digests, the same ones in the same order.
func FuzzDependencies(f *testing.F) {
	f.Add([]byte(`{"calibration":{"domains":[{"name":"x","sha256":"`+sumA+`"},{"name":"y","sha256":"`+sumA+`"}]}}`),
		[]byte(`[{"path":"a/b","sha256":"`+sumB+`"}]`))
	f.Add([]byte(`{}`), []byte(`{"a":[{"path":"..\\x","sha256":"`+sumC+`"},{"path":7}]}`))
	f.Fuzz(func(t *testing.T, report, recipe []byte) {
		texts, err := parseReport(report)
		if err != nil && texts != nil {
			t.Fatal("texts and an error")
		}
		m := &manifest.Manifest{Recipe: recipe}
		list := dependencies(m, texts)
		for _, d := range list {
			if !digest.IsHex(d.Digest["sha256"]) {
				t.Fatal(err)
			}
		}
		again, _ := parseReport(report)
		if diff := cmp.Diff(list, dependencies(m, again)); diff != "" {
			t.Fatalf("another list:\n%s", diff)
		}
	})
}
