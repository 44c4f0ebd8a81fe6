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
		Name: m.Name, Repo: m.Source.Repo, Revision: m.Source.Revision, Target: m.Target, MinimumEngine: m.MinimumEngine,
		Specs: Specs(m.Tensors), PackageBytes: 2_011_769, DeviceBytes: 3_500_000_000,
		Checks: []Measure{
			{Name: "layout", Outcome: Passed},
			{Name: "kl", Value: new(0.0591), Unit: "nats", Limit: "<= 0.03", Outcome: Failed, Detail: "first diverging layer is 3"},
			{Name: "golden", Outcome: Skipped, Detail: "no goldens are given"},
		},
		Metrics:  measures(),
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
