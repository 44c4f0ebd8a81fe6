package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/figure"
	"github.com/llmexport/llmexport/publish/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden pages in testdata")

// sample is a report with everything that a page shows.
func sample(name string, bytes int64, kl float64) *about.Report {
	return &about.Report{
		Name: name, Tool: "llmexport 0.1.0", Repo: "someone/Qwen3-0.6B", Revision: "0123456789abcdef",
		Target:        manifest.Target{Engine: "3.6", Backends: []string{"cpu"}},
		MinimumEngine: "3.6.0", Verified: true, Specs: []about.SpecSummary{{Spec: "w4-b64-asym", Tensors: 28, Bytes: bytes}},
		Bits:         &about.BitMap{Layers: 4, Roles: []string{"q", "experts down"}, Bits: [][]float64{{4, 4, 8, 4}, {3.5, 2, 0, 3}}},
		PackageBytes: bytes, SourceBytes: 1_200_000_000, DeviceBytes: 2 * bytes, DeviceContext: 2048,
		Checks: []about.Measure{
			{Name: "layout", Outcome: about.Passed, Detail: "9 files match"},
			{Name: "kl", Value: &kl, Unit: "nats", Limit: "<= 0.15", Outcome: about.Passed},
		},
		Metrics: []about.Measure{
			{Name: "kl", Value: &kl, StdErr: kl / 20}, {Name: "same_top_token", Value: new(0.9123)}, {Name: "perplexity", Value: new(21.2345)},
		},
		Divergence: &about.Divergence{
			Text: "the built-in text", Window: 512, Windows: 4, Scored: 2044,
			Shares:    []about.DivergenceShare{{Share: 0.5, KL: kl / 2}, {Share: 0.999, KL: 1.5}, {Share: 1, KL: 3}},
			Positions: []about.DivergenceRange{{From: 0, To: 255, Mean: kl, High: 3 * kl}, {From: 256, To: 510, Mean: kl / 2, High: 2 * kl}},
			Passages: []about.Passage{{
				Window: 1, Position: 134, KL: 0.43, Before: "the <b>principle</b>\nof", Next: " republics",
				Source:  []about.Probability{{Token: " republics", Probability: 0.75}},
				Package: []about.Probability{{Token: "\n", Probability: 0.5}, {Token: " </code>", Probability: 0.25}},
			}},
		},
		LayerErrors: []float64{0.08, 0.1, 0.12, 0.14}, LayerLimit: 0.5,
		Matrices: []about.OpError{{Tensor: "model.layers.1.self_attn.v_proj.weight", Spec: "w4-b64-asym", WeightError: 0.00862}},
		Backends: []about.Backend{
			{Name: "cpu", Verdict: "right", Evidence: "measured on x86-64"},
			{Name: "metal", Verdict: "wrong results", Evidence: "read", Problems: []string{"ignores sinks"}},
		},
		Warnings: []string{"512 tokens are few"}, Notes: []string{"a rare case"}, Conditions: []string{"positions up to 4096"},
		Timings: []about.Timing{{Stage: "fetch", Seconds: 1.234567}, {Stage: "verify", Seconds: 83.2}},
	}
}

// pages are what the tests draw, by name.
func pages(t *testing.T) map[string][]byte {
	calibrated := sample("calibrated", 300_000_000, 0.02)
	calibrated.Matrices, calibrated.Verified = nil, false
	calibrated.Calibration = &about.Calibration{Ops: []about.OpError{
		{Tensor: "a", Spec: "w4-b64-asym", Tokens: 5, OutputError: 0.1}, {Tensor: "b", OutputError: 0.2},
	}}
	calibrated.Checks[1].Outcome = about.Failed
	list := map[string][]byte{}
	for name, make := range map[string]func() ([]byte, error){
		"package": func() ([]byte, error) { return Package(sample("qwen3-0.6b-int4", 400_000_000, 0.0389)) },
		"bare":    func() ([]byte, error) { return Package(&about.Report{Name: "<x> & \"y\"", MinimumEngine: "3.5.0"}) },
		"run": func() ([]byte, error) {
			return Run("qwen3", []*about.Report{sample("int4", 400_000_000, 0.0389), sample("int8", 700_000_000, 0.001), calibrated})
		},
		"compare": func() ([]byte, error) {
			return Compare(Comparison{
				Title: "Packages of Qwen3-0.6B", Lead: []string{"the built-in text, 4 windows"}, Tool: "llmexport 0.1.0",
				Points: []figure.Point{{Name: "int4", Bytes: 4e8, KL: 0.03, StdErr: 0.001, Kind: figure.Front}, {Name: "Q4_K_M", Bytes: 5e8, KL: 0.05, Kind: figure.Given}},
				Table:  Table{"All packages", Columns("package", ">MB"), [][]string{{"int4", "400.00"}}}, Legend: []string{"* best at its size"},
			})
		},
	} {
		b, err := make()
		if err != nil {
			t.Fatal(err)
		}
		list[name] = b
	}
	return list
}

func TestPages(t *testing.T) {
	again := pages(t)
	for name, got := range pages(t) {
		t.Run(name, func(t *testing.T) {
			if !bytes.Equal(got, again[name]) {
				t.Error("the second page differs")
			}
			checkPage(t, string(got))
			file := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(file, got, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("go test -update rewrites it:\n%s", diff)
			}
		})
	}
}

// checkPage requires that a page loads nothing, runs nothing, and has unique ids, to which all its references lead.
func checkPage(t *testing.T, text string) {
	t.Helper()
	for _, bad := range []string{"<script", "<link", "<img", "@import", "url(", "ZgotmplZ", " src=", " onload", "<b>"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, m := range regexp.MustCompile(`https?://[^"<]*`).FindAllString(text, -1) {
		if m != "http://www.w3.org/2000/svg" { // a name, not an address
			t.Errorf("the page names %s", m)
		}
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if ids[m[1]] {
			t.Errorf("two elements have the id %s", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` (?:aria-labelledby="|href="#)([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if !ids[m[1]] {
			t.Errorf("no element has the id %s", m[1])
		}
	}
}

func TestPicture(t *testing.T) {
	svg := Picture(sample("x", 1e6, 0.01))
	for _, want := range []string{"Bits of weights", "Divergence over positions", "experts down", `aria-label="The package x.`} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("no %q in the picture", want)
		}
	}
	if Picture(&about.Report{}) != nil {
		t.Error("a report without figures has a picture")
	}
}

func TestRuns(t *testing.T) {
	if got := runs([]float64{4, 4, 0, 3.5, 3.5, 2}); got != "0-1: 4, 3-4: 3.5, 5: 2" {
		t.Error(got)
	}
}
