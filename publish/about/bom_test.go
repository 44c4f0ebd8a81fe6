package about

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/publish/place/placetest"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// bomPackage writes a package of these files, with what change does to its manifest.
func bomPackage(t *testing.T, files map[string]string, change func(*manifest.Manifest)) string {
	t.Helper()
	dir := t.TempDir()
	roles := map[string]string{CardName: "card", ReportName: "report", "llm_config.json": "model", "llm.mnn.weight": "weights", "LICENSE": "license"}
	m := cardManifest()
	m.Files, m.Tensors, m.Verified = nil, nil, false
	for name, text := range files {
		placetest.Write(t, filepath.Join(dir, name), text)
		f, err := manifest.HashFile(t.Context(), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f.Role = roles[name]
		m.Files = append(m.Files, f)
	}
	change(m)
	m.Sort()
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	placetest.Write(t, filepath.Join(dir, manifest.FileName), string(data))
	return dir
}

// TestBOM writes what the module of llmexport-sign holds to the schema of CycloneDX.
func TestBOM(t *testing.T) {
	report := `{"calibration":{"text":"x","tokens":5,"domains":[{"name":"prose.txt","sha256":"` + sum + `","windows":1,"tokens":5,"weight":1}]}}`
	tests := map[string]struct {
		files  map[string]string
		change func(*manifest.Manifest)
	}{
		"full": {map[string]string{
			CardName: sourceCard, ReportName: report, "llm_config.json": `{"model_type":"qwen3"}`, "llm.mnn.weight": strings.Repeat("w", 100), "LICENSE": "text",
		}, func(m *manifest.Manifest) {
			m.Source.Files = []manifest.File{{Name: "model.safetensors", Size: 9, SHA256: sum}}
			m.Tensors = []manifest.Tensor{
				{Name: "a", Op: "/a", Spec: "w4-b64-asym", File: "llm.mnn.weight", Size: 60, SHA256: sum},
				{Name: "a", Op: "/b", Spec: "w4-b64-asym", File: "llm.mnn.weight", Size: 60, SHA256: sum},
				{Name: "b", Op: "/c", Spec: "f32", File: "llm.mnn.weight", Offset: 60, Size: 40, SHA256: sum},
			}
			m.Verified, m.Checks = true, []manifest.Check{{Name: "layout", Passed: true}, {Name: "golden", Skipped: true}}
			m.Metrics = map[string]manifest.Metric{"perplexity": {Value: 94.5, StdErr: 0.5}, "same_top_token": {Value: 0.875}}
		}},
		"modelscope": {map[string]string{"config.json": "{}"}, func(m *manifest.Manifest) { m.Source.Hub = manifest.ModelScope }},
		"bare": {map[string]string{"config.json": "{}"}, func(m *manifest.Manifest) {
			m.Source, m.Conditions, m.Checks = manifest.Source{}, nil, []manifest.Check{{Name: "kl"}}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := BOM(t.Context(), bomPackage(t, tc.files, tc.change))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "bom.json", got)
		})
	}
}

func TestBOMRefuses(t *testing.T) {
	for name, file := range map[string][2]string{
		"report": {ReportName, "{"}, "facts": {"llm_config.json", `{"model_type":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := BOM(t.Context(), bomPackage(t, map[string]string{file[0]: file[1]}, func(*manifest.Manifest) {}))
			if !errors.Is(err, tensor.ErrCorrupt) || !strings.Contains(err.Error(), file[0]) {
				t.Errorf("got %v, want tensor.ErrCorrupt that names %s", err, file[0])
			}
		})
	}
	dir := bomPackage(t, map[string]string{CardName: "x"}, func(*manifest.Manifest) {})
	placetest.Write(t, filepath.Join(dir, CardName), "y")
	if _, err := BOM(t.Context(), dir); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("another card: %v", err)
	}
}

func TestBOMLicenses(t *testing.T) {
	one := func(id, name, link string) []bomLicenseChoice {
		return []bomLicenseChoice{{bomLicense{id, name, link, "declared"}}}
	}
	for name, tc := range map[string]struct {
		card string
		want []bomLicenseChoice
	}{
		"none":        {"", nil},
		"no licence":  {"---\ntags: [a]\n---\n", nil},
		"known":       {"---\nlicense: apache-2.0\n---\n", one("Apache-2.0", "", "")},
		"unknown":     {"---\nlicense: llama3.2\n---\n", one("", "llama3.2", "")},
		"other":       {"---\nlicense: other\nlicense_name: x-y\nlicense_link: https://example.com/a b\n---\n", one("", "x-y", "https://example.com/a%20b")},
		"file link":   {"---\nlicense: other\nlicense_link: LICENSE\n---\n", one("", "other", "")},
		"secret link": {"---\nlicense: other\nlicense_link: https://u:p@example.com/\n---\n", one("", "other", "")},
		"several":     {"---\nlicense: [mit, '']\n---\n", one("MIT", "", "")},
		"broken":      {"---\nlicense: [\n---\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, bomLicenses([]byte(tc.card))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
