package about

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/manifest"
)

func report() Report {
	m := cardManifest()
	return Report{
		Tool: "llmexport 0.1.0", SourceBytes: 8_000_000, DeviceContext: 2048, Bits: BitsOf([]manifest.Tensor{
			{Op: "/layers.0/self_attn/q_proj/Linear", Spec: "w4-b64-asym", Size: 400}, {Op: "/layers.1/mlp/experts.3/down_proj/Linear", Spec: "w3-b64-sym", Size: 300},
		}),
		Divergence: &Divergence{
			Text: "the built-in text", SHA256: sum, Window: 512, Windows: 4, Scored: 2044,
			Shares: []DivergenceShare{{0.5, 0.01}, {1, 0.3}}, Positions: []DivergenceRange{{0, 255, 0.02, 0.1}, {256, 510, 0.03, 0.1}},
			Passages: []Passage{{1, 7, 0.3, "I am <b> ", "a", []Probability{{"a", 0.9}}, []Probability{{"the", 0.8}, {"a", 0.1}}}},
		},
		LayerErrors: []float64{0.1, 0.2}, LayerLimit: 1, Backends: []Backend{{Name: "cpu", Verdict: "right", Evidence: "measured"}},
		Notes: []string{"a note"}, Conditions: []string{"a condition"},
		Name: m.Name, Repo: m.Source.Repo, Revision: m.Source.Revision, Target: m.Target, MinimumEngine: m.MinimumEngine,
		Specs: Specs(m.Tensors), PackageBytes: 2_011_769, DeviceBytes: 3_500_000_000,
		Checks: []Measure{
			{Name: "layout", Outcome: Passed},
			{Name: "kl", Value: new(0.0591), Unit: "nats", Limit: "<= 0.03", Outcome: Failed, Detail: "first diverging layer is 3"},
			{Name: "golden", Outcome: Skipped, Detail: "no goldens are given"},
		},
		Metrics:  append(measures(), Measure{Name: "kl", Value: new(0.05912345), StdErr: 0.0004321}, Measure{Name: "same_top_token", Value: new(0.912345)}),
		Warnings: []string{"the source's README.md states no licence\x1b[31m"},
		Timings:  []Timing{{"fetch", 1.234567}, {"quantize", 83.2}},
	}
}

func TestReport(t *testing.T) {
	tests := map[string]Report{
		"full": report(),
		"bare": {Name: "x", Target: manifest.Target{Engine: "3.5"}, MinimumEngine: "3.5.0", Verified: true, PackageBytes: 512},
	}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			golden(t, "report.txt", text.Bytes())
			data, err := r.JSON()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "report.json", data)
			var back Report
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r, back); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPackageJSON(t *testing.T) {
	r, other := report(), report()
	other.Timings = []Timing{{"fetch", 99}}
	a, err := r.PackageJSON()
	if err != nil {
		t.Fatal(err)
	}
	b, err := other.PackageJSON()
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("two runs give two reports, %v", err)
	}
	if strings.Contains(string(a), "timings") || r.Timings == nil {
		t.Error("timings are in the package's report, or gone from the report itself")
	}
}

func TestWriteTextFails(t *testing.T) {
	want := errors.New("closed")
	if err := report().WriteText(failing(func([]byte) (int, error) { return 0, want })); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

type failing func(b []byte) (int, error)

func (f failing) Write(b []byte) (int, error) { return f(b) }
