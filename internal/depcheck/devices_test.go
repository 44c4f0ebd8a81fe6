package depcheck

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends"
)

const (
	devicesDoc      = "docs/devices.md"
	devicesMeasured = "backends/testdata/devices/measured.json"
	devicesBegin    = "<!-- generated: go test ./internal/depcheck -run TestDevicesDoc -update -->\n"
)

// TestDevicesDoc holds docs/devices.md to the rules of the backends and to what was measured.
func TestDevicesDoc(t *testing.T) {
	path := filepath.Join("..", "..", devicesDoc)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(b), devicesBegin)
	if !ok {
		t.Fatalf("%s lacks the line %q", devicesDoc, devicesBegin)
	}
	want := head + devicesBegin + devicesTables(t)
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(b) != want {
		t.Errorf("%s is not what the rules and the measured table say; go test ./internal/depcheck -run TestDevicesDoc -update rewrites it", devicesDoc)
	}
}

// devicesCell is a line of the measured table.
type devicesCell struct {
	Engine        string   `json:"engine"`
	Package       string   `json:"package"`
	SOC           string   `json:"soc"`
	Precision     string   `json:"precision"`
	Memory        string   `json:"memory"`
	AttentionMode int      `json:"attention_mode"`
	Prefill       *float64 `json:"prefill"`
	Decode        *float64 `json:"decode"`
	Failed        bool     `json:"failed"`
}

func devicesTables(t *testing.T) string {
	b, err := os.ReadFile(filepath.Join("..", "..", devicesMeasured))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		LeftOut  map[string]int               `json:"left_out"`
		Packages map[string]backends.Features `json:"packages"`
		Cells    []devicesCell                `json:"cells"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	type seen struct {
		cells, failed   int
		prefill, decode float64
	}
	found := map[string]map[string]*seen{} // by rule and profile
	verdicts := map[string]map[backends.Verdict]int{}
	for _, c := range m.Cells {
		kind, release, _ := strings.Cut(c.Engine, "-")
		release, _, _ = strings.Cut(release, "-")
		if x := map[string]string{"arm": "arm64", "x86": "cpu"}[kind]; x != "" {
			kind = x
		}
		i := slices.IndexFunc(backends.Profiles(), func(p *backends.Profile) bool { return p.Name == kind })
		if i < 0 {
			t.Fatalf("no profile for %s", c.Engine)
		}
		p, f := backends.Profiles()[i], m.Packages[c.Package]
		v, problems := p.Judge(&f, backends.Settings{Precision: c.Precision, Memory: c.Memory, AttentionMode: c.AttentionMode, SOC: c.SOC}, release)
		at := strings.TrimSpace(p.Title + " " + release + " " + c.SOC)
		if verdicts[at] == nil {
			verdicts[at] = map[backends.Verdict]int{}
		}
		verdicts[at][v]++
		for _, x := range problems {
			if found[x.Rule.ID] == nil {
				found[x.Rule.ID] = map[string]*seen{}
			}
			s := found[x.Rule.ID][p.Name]
			if s == nil {
				s = &seen{}
				found[x.Rule.ID][p.Name] = s
			}
			s.cells++
			if c.Failed {
				s.failed++
			}
			if x.Rule.Verdict < v { // the divergence is that of another rule
				continue
			}
			if c.Prefill != nil {
				s.prefill = max(s.prefill, *c.Prefill)
			}
			if c.Decode != nil {
				s.decode = max(s.decode, *c.Decode)
			}
		}
	}
	var w strings.Builder
	w.WriteString("\n## What backends compute wrongly\n\n| rule | backend | verdict | engine | the backend | known from | what helps |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range backends.Rules() {
		for _, p := range backends.Profiles() {
			kind := r.Evidence[p.Name]
			if kind == "" {
				continue
			}
			from := "**read, not run**"
			if s := found[r.ID][p.Name]; kind == backends.Run {
				if s == nil {
					t.Errorf("%s on %s is called run, and no measured cell has it", r.ID, p.Name)
					continue
				}
				from = fmt.Sprintf("%d runs; KL up to %.2g / %.2g", s.cells, s.prefill, s.decode)
				if s.failed > 0 {
					from = fmt.Sprintf("%d runs, %d of them crash", s.cells, s.failed)
				}
			}
			if r.Cite != "" {
				from += "; " + r.Cite
			}
			fmt.Fprintf(&w, "| `%s` | %s | %s | %s | %s | %s | %s |\n", r.ID, p.Title, r.Verdict, r.Engines(), r.What, from, strings.Join(r.Change, "; "))
		}
	}
	w.WriteString("\nKL is the largest divergence in nats from the same package on the x86 CPU in float, prompts / single tokens. " +
		"Paths are relative to `source/backend` of MNN 3.6.1.\n" +
		"\n## What was run\n\n| backend and engine | right | falls back | unknown | wrong | unsupported |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, at := range slices.Sorted(maps.Keys(verdicts)) {
		fmt.Fprintf(&w, "| %s |", at)
		for v := backends.Right; v <= backends.Unsupported; v++ {
			fmt.Fprintf(&w, " %d |", verdicts[at][v])
		}
		w.WriteString("\n")
	}
	fmt.Fprintf(&w, "\nThese are %d runs of %d packages, by what the rules say of them. Left out of the table:\n\n", len(m.Cells), len(m.Packages))
	for _, why := range slices.Sorted(maps.Keys(m.LeftOut)) {
		fmt.Fprintf(&w, "- %s: %d\n", why, m.LeftOut[why])
	}
	return w.String()
}
