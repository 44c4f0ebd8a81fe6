package backends_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/backends"
)

// measured is testdata/devices/measured.json: divergences in nats of packages from the same package on the x86 CPU in float.
type measured struct {
	LeftOut  map[string]int               `json:"left_out"`
	Packages map[string]backends.Features `json:"packages"`
	Cells    []measuredCell               `json:"cells"`
}

type measuredCell struct {
	Engine        string `json:"engine"` // such as opencl-3.6.1, arm-3.6.1-cortex-a76, x86-3.5.0
	Package       string `json:"package"`
	SOC           string `json:"soc"` // a family of GPUs, empty for drivers that run on CPUs
	Precision     string `json:"precision"`
	Memory        string `json:"memory"`
	AttentionMode int    `json:"attention_mode"`
	// Prefill and Decode are nil where they were not measured.
	Prefill   *float64 `json:"prefill"`
	Decode    *float64 `json:"decode"`
	NotFinite int      `json:"not_finite"`
	Failed    bool     `json:"failed"`
}

// The divergences in nats up to which results are right: in float32 what the order of sums costs, in fp16 what packages for GPUs may
// cost, and what rounding activations, or keys and values, to int8 costs at most on the models measured.
const (
	floatKL = 1e-9
	arm64KL = 1e-7 // the engine's functions there are polynomials
	halfKL  = 5e-4
	int8KL  = 5e-3
)

// profile returns the profile of a cell and its release.
func (c *measuredCell) profile(t *testing.T) (*backends.Profile, string) {
	kind, release, _ := strings.Cut(c.Engine, "-")
	release, _, _ = strings.Cut(release, "-")
	name := map[string]string{"arm": "arm64", "x86": "cpu"}[kind]
	if name == "" {
		name = kind
	}
	for _, p := range backends.Profiles() {
		if p.Name == name {
			return p, release
		}
	}
	t.Fatalf("no profile for %q", c.Engine)
	return nil, ""
}

// limit is the divergence up to which the results of a cell are right.
func (c *measuredCell) limit(p *backends.Profile, f *backends.Features) float64 {
	limit := floatKL
	if p.Name == "arm64" {
		limit = arm64KL
	}
	// pocl has no fp16: it computes in float32 at every precision.
	if p.HalfAt(c.Precision) && p.Name != "opencl" {
		limit = halfKL
	}
	coded := false
	for _, l := range f.Linears {
		coded = coded || l.Bits != 16
	}
	if p.Int8 && (coded && c.Memory == "low" || c.AttentionMode != 0 && c.AttentionMode != 8) {
		limit = int8KL
	}
	return limit
}

// judge returns the verdict of the problems that concern a phase.
func judge(base backends.Verdict, problems []backends.Problem, phase string) backends.Verdict {
	for _, x := range problems {
		if x.Rule.Phase == "" || x.Rule.Phase == phase {
			base = max(base, x.Rule.Verdict)
		}
	}
	return base
}

// readMeasured reads the recorded table, or what `make devices` has just measured.
func readMeasured(t *testing.T) *measured {
	if path := os.Getenv("LLMEXPORT_DEVICES"); path != "" {
		return readRuns(t, path)
	}
	b, err := os.ReadFile("testdata/devices/measured.json")
	if err != nil {
		t.Fatal(err)
	}
	m := new(measured)
	if err := json.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// readRuns reads the results of testdata/devices/measure.py, a line for each run with the features of its package.
func readRuns(t *testing.T, path string) *measured {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &measured{Packages: map[string]backends.Features{}}
	for line := range strings.Lines(string(b)) {
		var r struct {
			Engine   string            `json:"engine"`
			Package  string            `json:"pkg"`
			Features backends.Features `json:"features"`
			Options  struct {
				Precision string `json:"precision"`
				Memory    string `json:"memory"`
			} `json:"opts"`
			Own *struct {
				Prefill float64 `json:"kl_prefill"`
				Decode  float64 `json:"kl_decode"`
			} `json:"own"`
			NotFinite int    `json:"not_finite"`
			Failed    string `json:"failed"`
		}
		// Python writes NaN, which is no JSON.
		if err := json.Unmarshal([]byte(strings.ReplaceAll(line, "NaN", "1e9")), &r); err != nil {
			t.Fatal(err)
		}
		if r.Options.Precision == "" {
			t.Logf("%s: the CPU did not run it: %s", r.Package, r.Failed)
			continue
		}
		m.Packages[r.Package] = r.Features
		c := measuredCell{
			Engine: r.Engine, Package: r.Package, Precision: r.Options.Precision, Memory: r.Options.Memory, NotFinite: r.NotFinite, Failed: r.Failed != "",
		}
		if r.Own != nil {
			c.Prefill, c.Decode = &r.Own.Prefill, &r.Own.Decode
		}
		m.Cells = append(m.Cells, c)
	}
	if len(m.Cells) == 0 {
		t.Fatalf("%s has no runs", path)
	}
	return m
}

// byChance are rules about reading past the end of memory, or what nothing has written, which spares some packages.
var byChance = []string{"low-bit-3.5", "packed-rest"}

// atTurns are rules about the second prompt of a conversation, which most runs do not have.
var atTurns = []string{"short-conv-turns", "delta-turns"}

// underHalf are rules about less than what rounding to fp16 costs.
var underHalf = []string{"exact-gelu"}

// TestMeasured holds the rules to every measured cell: none that is wrong may be called right, and none that is right wrong. Rules that
// call a cell unknown must be rare: they are about fp16 only. What spares some packages on a family of GPUs is not known: such rules may
// call single cells wrong that are right.
func TestMeasured(t *testing.T) {
	m := readMeasured(t)
	count := map[backends.Verdict]int{}
	var spared []string
	for _, c := range m.Cells {
		f, ok := m.Packages[c.Package]
		if !ok {
			t.Fatalf("no features of %s", c.Package)
		}
		p, release := c.profile(t)
		verdict, problems := p.Judge(&f, backends.Settings{Precision: c.Precision, Memory: c.Memory, AttentionMode: c.AttentionMode, SOC: c.SOC}, release)
		count[verdict]++
		if verdict == backends.Unknown && !p.HalfAt(c.Precision) {
			t.Errorf("unknown, but measured: %+v", c)
		}
		broken, called := false, false
		for phase, kl := range map[string]*float64{"prefill": c.Prefill, "decode": c.Decode} {
			wrong := c.Failed || kl == nil && c.NotFinite > 0 || kl != nil && *kl > c.limit(p, &f)
			v := judge(backends.Right, problems, phase)
			if v <= backends.Slow && wrong && (kl != nil || c.Failed || c.NotFinite > 0) {
				t.Errorf("%s called %s and is wrong: %+v: %v", phase, v, c, problems)
			}
			broken = broken || wrong
			called = called || v >= backends.Wrong && (kl != nil || c.Failed || c.NotFinite > 0)
		}
		if called && !broken && c.SOC != "" {
			spared = append(spared, fmt.Sprintf("%s at %s on %s, %s", c.Package, c.Precision, c.Engine, c.SOC))
			continue
		}
		spares := slices.Concat(byChance, atTurns)
		if p.HalfAt(c.Precision) {
			spares = append(spares, underHalf...)
		}
		if called && !broken && !slices.ContainsFunc(problems, func(x backends.Problem) bool { return slices.Contains(spares, x.Rule.ID) }) {
			t.Errorf("called %s and is right: %+v: %v", verdict, c, problems)
		}
	}
	if len(spared) > 1 {
		t.Errorf("called wrong and right: %v", spared)
	}
	if path := os.Getenv("LLMEXPORT_DEVICES"); path != "" {
		t.Logf("%d cells of %s: %v", len(m.Cells), path, count)
		return
	}
	if len(m.Cells) < 500 || count[backends.Wrong] < 50 || count[backends.Unsupported] < 5 || count[backends.Slow] < 3 {
		t.Errorf("%d cells: %v", len(m.Cells), count)
	}
	t.Logf("%d cells: %v", len(m.Cells), count)
}
