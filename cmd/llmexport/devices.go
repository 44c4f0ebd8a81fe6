package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/internal/exit"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/pipeline/assemble"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func (t *tool) devicesCommand() *cli.Command {
	return &cli.Command{
		Name:      "devices",
		Usage:     "show which backends of the engine compute a package correctly",
		ArgsUsage: "[PACKAGE]",
		Description: "Without PACKAGE it lists what each backend computes wrongly, and how that is known. With one it judges the package, of this\n" +
			"program or another, with the configuration that it has for each backend, on every known release of the engine.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "engine", Usage: "only the release `RELEASE` of the engine, such as " + newestRelease()},
			jsonFlag(),
		},
		CustomHelpTemplate: help("llmexport devices dist/qwen3-0.6b-int4", "llmexport devices --engine 3.6.1 --json"),
		Action:             t.devices,
	}
}

func newestRelease() string {
	all := backends.Releases()
	return all[len(all)-1]
}

// judged is how a backend of an engine release treats a package.
type judged struct {
	// Device is the kind of device, Backend the engine's word.
	Device  string           `json:"device"`
	Backend string           `json:"backend"`
	Engine  string           `json:"engine"`
	Verdict backends.Verdict `json:"verdict"`
	// Measured reports whether packages of this program were run there.
	Measured bool `json:"measured"`
	// Config is the file that was judged.
	Config   string            `json:"config"`
	Settings backends.Settings `json:"settings"`
	Problems []judgedProblem   `json:"problems"`
}

type judgedProblem struct {
	Rule    string           `json:"rule"`
	Verdict backends.Verdict `json:"verdict"`
	Phase   string           `json:"phase,omitempty"`
	// Devices restricts the problem to some devices.
	Devices  string   `json:"devices,omitempty"`
	Evidence string   `json:"evidence"`
	What     string   `json:"what"`
	Change   []string `json:"change"`
}

// judgement is the JSON output about a package.
type judgement struct {
	Package  string            `json:"package"`
	Minimum  string            `json:"minimum_engine"`
	Features backends.Features `json:"features"`
	Cells    []judged          `json:"cells"`
}

func (t *tool) devices(c *cli.Context) error {
	if c.NArg() > 1 {
		return exit.Usagef("devices takes one package, not %d arguments", c.NArg())
	}
	args := c.Args().Slice()
	releases := backends.Releases()
	if only := c.String("engine"); only != "" {
		if !slices.Contains(releases, only) {
			return exit.Usagef("--engine must be %s, not %s", strings.Join(releases, ", "), only)
		}
		releases = []string{only}
	}
	if len(args) == 0 {
		return t.listRules(releases, c.Bool("json"))
	}
	o, err := look(args[0])
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	if o.graph == nil {
		return explained(c.Context, args[0], o.problems[0])
	}
	j, err := o.devices(releases)
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	if c.Bool("json") {
		return t.printJSON(j)
	}
	return t.show(func(w io.Writer) error { return j.write(w) })
}

// features are those of the package. Config keys that other programs write count too.
func (o *overview) features() backends.Features {
	f := backends.FeaturesOf(o.graph)
	for _, l := range o.Linears {
		x := backends.Linear{Bits: l.Bits, Block: l.Block, Symmetric: l.Symmetric, Header: l.header}
		if l.Block == 0 {
			x = backends.Linear{Bits: 16}
		}
		f.AddLinear(x)
	}
	if p, _ := o.Config["precision"].(string); p == "normal" || p == "high" {
		f.Needs = p
	}
	if n, ok := configNumber(o.Config["attn_scale"]); ok && n != 0 {
		f.Scaled = f.Scaled || !slices.ContainsFunc(f.HeadDims, func(dim int) bool { return math.Abs(float64(n*math.Sqrt(float64(dim)))-1) < 1e-6 })
	}
	if n, ok := configNumber(o.Config["sliding_window"]); ok && n > 0 {
		kind, _ := o.Config["attention_type"].(string)
		f.Masks = f.Masks || kind == "mix" || kind == "sliding"
	}
	return f
}

// configNumber returns a value of a configuration as a number.
func configNumber(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case json.Number:
		n, err := x.Float64()
		return n, err == nil
	}
	return 0, false
}

// devices judges the package on all profiles.
func (o *overview) devices(releases []string) (*judgement, error) {
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	j := &judgement{Package: o.Dir, Minimum: o.MinimumEngine, Features: o.features(), Cells: []judged{}}
	for _, p := range backends.Profiles() {
		file, config := assemble.ConfigFile, o.Config
		if b, err := readBounded(root, assemble.DeviceConfigFile(p.Backend()), maxJSON); err == nil && p.Backend() != "cpu" {
			file, config = assemble.DeviceConfigFile(p.Backend()), map[string]any{}
			if err := jsondoc.Decode(b, &config); err != nil {
				return nil, fmt.Errorf("%s: %v: %w", file, err, tensor.ErrCorrupt)
			}
		}
		s := settings(config)
		for _, release := range releases {
			v, problems := p.Judge(&j.Features, s, release)
			x := judged{p.Name, p.Backend(), release, v, slices.Contains(p.Measured, release), file, s, []judgedProblem{}}
			if release < o.MinimumEngine {
				x.Verdict = backends.Unsupported
				x.Problems = append(x.Problems, judgedProblem{
					Rule: "engine", Verdict: backends.Unsupported, Evidence: "contents of the package", What: "needs engine " + o.MinimumEngine,
					Change: []string{"use engine " + o.MinimumEngine},
				})
			}
			for _, q := range problems {
				x.Problems = append(x.Problems, judgedProblem{
					q.Rule.ID, q.Rule.Verdict, q.Rule.Phase, q.Rule.Device, q.Evidence, q.Rule.What, q.Rule.Change,
				})
			}
			j.Cells = append(j.Cells, x)
		}
	}
	return j, nil
}

// settings are those of a configuration, with the engine's defaults.
func settings(config map[string]any) backends.Settings {
	word := func(key string) string {
		s, _ := config[key].(string)
		return cmp.Or(s, "low")
	}
	mode, _ := configNumber(config["attention_mode"])
	return backends.Settings{Precision: word("precision"), Memory: word("memory"), AttentionMode: int(mode)}
}

func (j *judgement) write(w io.Writer) error {
	s := sheet.New("device", "engine", "verdict", "configuration", "why", "change")
	for i, x := range j.Cells {
		if i > 0 && j.same(i) {
			continue
		}
		engines := x.Engine
		for k := i + 1; k < len(j.Cells) && j.same(k); k++ {
			engines = x.Engine + " to " + j.Cells[k].Engine
		}
		why, change := "", ""
		switch {
		case len(x.Problems) > 0:
			worst := slices.MaxFunc(x.Problems, func(a, b judgedProblem) int { return cmp.Compare(a.Verdict, b.Verdict) })
			why, change = worst.What+" ("+worst.Evidence+")", strings.Join(worst.Change, ", or ")
		case !x.Measured:
			why = "not measured"
		}
		s.Row(title(x.Device), engines, x.Verdict, x.Config, why, change)
	}
	return s.Write(w, false)
}

// same reports whether a cell says the same as the one before.
func (j *judgement) same(i int) bool {
	a, b := j.Cells[i-1], j.Cells[i]
	rules := func(x judgedProblem) string { return x.Rule }
	return a.Device == b.Device && a.Verdict == b.Verdict && a.Measured == b.Measured && slices.EqualFunc(a.Problems, b.Problems,
		func(x, y judgedProblem) bool { return rules(x) == rules(y) })
}

func title(device string) string {
	for _, p := range backends.Profiles() {
		if p.Name == device {
			return p.Title
		}
	}
	return device
}

// listRules prints what is known of the backends of some releases.
func (t *tool) listRules(releases []string, asJSON bool) error {
	list := []*backends.Rule{}
	for _, r := range backends.Rules() {
		if slices.ContainsFunc(releases, r.In) {
			list = append(list, r)
		}
	}
	if asJSON {
		return t.printJSON(struct {
			Releases []string            `json:"releases"`
			Profiles []*backends.Profile `json:"profiles"`
			Rules    []*backends.Rule    `json:"rules"`
		}{releases, backends.Profiles(), list})
	}
	return t.show(func(w io.Writer) error {
		s := sheet.New("backend", "verdict", "engine", "what it does", "known from")
		for _, p := range backends.Profiles() {
			for _, r := range list {
				if kind := r.Evidence[p.Name]; kind != "" {
					s.Row(p.Title, r.Verdict, r.Engines(), r.What, kind)
				}
			}
		}
		return s.Write(w, false)
	})
}
