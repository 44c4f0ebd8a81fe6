package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/figure"
	"github.com/llmexport/llmexport/publish/manifest"
)

// packageView is a package as the page shows it.
type packageView struct {
	ID     string
	Report *about.Report
	Facts  *Table
	// Figures come before the passages, Tables after them.
	Figures, Tables []section
	Passages        []passage
	Notes           []string
}

// section is a part of a page with a figure, a table or both.
type section struct {
	ID, Name string
	Text     []string
	Figure   *figure.Figure
	Table    *Table
}

// passage is a place where package and source differ.
type passage struct {
	Before, Next, Where string
	Sides               []side
}

type side struct {
	Name string
	Rows []probability
}

type probability struct{ Token, Percent string }

// shownMatrices is the number of matrices in the table of the worst.
const shownMatrices = 16

func newPackage(r *about.Report, index int) packageView {
	p := packageView{ID: fmt.Sprintf("package-%d", index+1), Report: r, Facts: facts(r)}
	add := func(list *[]section, id, name string, s section) {
		if s.Figure == nil && s.Table == nil {
			return
		}
		s.ID, s.Name = p.ID+"-"+id, name
		*list = append(*list, s)
	}
	add(&p.Figures, "bits", "Bits by layer and role", bits(r))
	add(&p.Figures, "layers", "Error by layer", layers(r))
	add(&p.Figures, "positions", "Divergence over positions", positions(r))
	add(&p.Tables, "matrices", "The worst matrices", matrices(r))
	add(&p.Tables, "checks", "Checks", checks(r))
	add(&p.Tables, "metrics", "Measurements", metrics(r))
	add(&p.Tables, "storage", "Storage", storage(r))
	add(&p.Tables, "backends", "Where it is right", backendsOf(r))
	add(&p.Tables, "times", "Times", times(r))
	p.Passages = passages(r)
	for _, w := range r.Warnings {
		p.Notes = append(p.Notes, "Warning: "+w)
	}
	p.Notes = append(append(p.Notes, r.Conditions...), r.Notes...)
	return p
}

func facts(r *about.Report) *Table {
	t := &Table{Caption: "The package", Head: Columns("fact", "value")}
	add := func(name, value string) {
		if value != "" {
			t.Rows = append(t.Rows, []string{name, value})
		}
	}
	if r.Repo != "" {
		add("source", strings.TrimSuffix(manifest.Source{Hub: r.Hub, Repo: r.Repo}.Name()+" @ "+r.Revision, " @ "))
	}
	add("target", strings.TrimSpace("MNN "+r.Target.Engine+" "+strings.Join(r.Target.Backends, ", ")))
	add("needs", "MNN "+r.MinimumEngine+" or newer")
	add("on disk", about.Bytes(r.PackageBytes))
	if r.SourceBytes > 0 {
		add("source on disk", about.Bytes(r.SourceBytes))
	}
	if r.DeviceBytes > 0 {
		add("memory on a device", fmt.Sprintf("about %s with %d tokens of context", about.Bytes(r.DeviceBytes), r.DeviceContext))
	}
	if d := r.Divergence; d != nil {
		add("measured on", fmt.Sprintf("%s, %d windows of %d tokens, %d positions", d.Text, d.Windows, d.Window, d.Scored))
	}
	return t
}

func bits(r *about.Report) section {
	if r.Bits == nil {
		return section{}
	}
	t := &Table{Caption: "Bits of the matrices of a role, by layers", Head: Columns("role", "layers: bits")}
	for i, role := range r.Bits.Roles {
		t.Rows = append(t.Rows, []string{role, runs(r.Bits.Bits[i])})
	}
	h := figure.Heat{Layers: r.Bits.Layers, Roles: r.Bits.Roles, Bits: r.Bits.Bits}
	return section{Figure: h.Draw("Bits of weights"), Table: t}
}

// runs lists runs of equal numbers: "0-3: 4, 4-27: 3".
func runs(list []float64) string {
	var parts []string
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[i] {
			k++
		}
		layers := strconv.Itoa(i)
		if k > i {
			layers += "-" + strconv.Itoa(k)
		}
		if list[i] != 0 {
			parts = append(parts, layers+": "+strconv.FormatFloat(list[i], 'g', 3, 64))
		}
		i = k + 1
	}
	return strings.Join(parts, ", ")
}

func layers(r *about.Report) section {
	if len(r.LayerErrors) == 0 {
		return section{}
	}
	t := &Table{Caption: "Relative error of the hidden state after each layer", Head: Columns("layer", ">error")}
	var values []figure.Value
	for i, e := range r.LayerErrors {
		values = append(values, figure.Value{X: float64(i), Y: e, Name: "layer " + strconv.Itoa(i)})
		t.Rows = append(t.Rows, []string{strconv.Itoa(i), short(e)})
	}
	return section{
		Figure: figure.Bars("Error by layer", "relative error of the hidden state, with float activations",
			"layer", "relative error", values, r.LayerLimit),
		Table: t,
	}
}

func positions(r *about.Report) section {
	d := r.Divergence
	if d == nil || len(d.Positions) == 0 {
		return section{}
	}
	t := &Table{Caption: "Divergence by position in a window, nats", Head: Columns("positions", ">mean", ">90 % are below")}
	for _, p := range d.Positions {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%d-%d", p.From, p.To), short(p.Mean), short(p.High)})
	}
	var shares []string
	for _, q := range d.Shares {
		shares = append(shares, fmt.Sprintf("%s %% at most %s", strconv.FormatFloat(100*q.Share, 'g', 4, 64), short(q.KL)))
	}
	return section{
		Text:   []string{"Over all positions: " + strings.Join(shares, ", ") + " nats."},
		Figure: positionsFigure(d), Table: t,
	}
}

func positionsFigure(d *about.Divergence) *figure.Figure {
	var low, high []figure.Value
	for _, p := range d.Positions {
		x, name := float64(p.From+p.To)/2, fmt.Sprintf("positions %d to %d", p.From, p.To)
		low = append(low, figure.Value{X: x, Y: p.Mean, Name: name})
		high = append(high, figure.Value{X: x, Y: p.High, Name: name + ", 90 %"})
	}
	return figure.Band("Divergence over positions", "line: mean; area: up to the 90 % quantile",
		"position in the window", "nats per token", low, high)
}

func matrices(r *about.Report) section {
	list, outputs := r.Matrices, false
	if r.Calibration != nil {
		list, outputs = slices.Clone(r.Calibration.Ops), true
		slices.SortStableFunc(list, func(a, b about.OpError) int { return cmp.Compare(b.OutputError, a.OutputError) })
	}
	if len(list) == 0 {
		return section{}
	}
	t := &Table{Caption: "Squared errors over squares", Head: Columns("matrix", "storage", ">weights")}
	text := "The matrices whose weights are farthest from the source's."
	if outputs {
		t.Head = Columns("matrix", "storage", ">outputs", ">weights", ">tokens")
		text = "The matrices whose outputs on the calibration text are farthest from the source's."
	}
	for _, o := range list[:min(len(list), shownMatrices)] {
		row := []string{o.Tensor, o.Spec, short(o.WeightError)}
		if outputs {
			row = []string{o.Tensor, o.Spec, short(o.OutputError), short(o.WeightError), strconv.FormatInt(o.Tokens, 10)}
		}
		t.Rows = append(t.Rows, row)
	}
	return section{Text: []string{text}, Table: t}
}

func checks(r *about.Report) section {
	if len(r.Checks) == 0 {
		return section{}
	}
	t := &Table{Caption: "What was checked", Head: Columns("check", "result", ">value", "limit", "detail")}
	for _, c := range r.Checks {
		t.Rows = append(t.Rows, []string{c.Name, string(c.Outcome), c.Text(), c.Limit, c.Detail})
	}
	return section{Table: t}
}

func metrics(r *about.Report) section {
	if len(r.Metrics) == 0 {
		return section{}
	}
	t := &Table{Caption: "What was measured", Head: Columns("measurement", ">value", ">standard error")}
	for _, m := range r.Metrics {
		t.Rows = append(t.Rows, []string{m.Meaning(), m.Text(), m.ErrorText()})
	}
	return section{Table: t}
}

func storage(r *about.Report) section {
	if len(r.Specs) == 0 {
		return section{}
	}
	t := &Table{Caption: "Storage forms of weights", Head: Columns("form", ">tensors", ">size")}
	for _, s := range r.Specs {
		t.Rows = append(t.Rows, []string{s.Spec, strconv.Itoa(s.Tensors), about.Bytes(s.Bytes)})
	}
	return section{Table: t}
}

func backendsOf(r *about.Report) section {
	if len(r.Backends) == 0 {
		return section{}
	}
	t := &Table{Caption: "Backends of the engine", Head: Columns("backend", "this package", "how that is known")}
	for _, b := range r.Backends {
		t.Rows = append(t.Rows, []string{b.Name, b.Verdict, strings.Join(append([]string{b.Evidence}, b.Problems...), "; ")})
	}
	return section{Table: t}
}

func times(r *about.Report) section {
	if len(r.Timings) == 0 {
		return section{}
	}
	t := &Table{Caption: "Wall time of the stages of this run; finished work is reused", Head: Columns("stage", ">time")}
	for _, x := range r.Timings {
		t.Rows = append(t.Rows, []string{x.Stage, time.Duration(x.Seconds * float64(time.Second)).Round(10 * time.Millisecond).String()})
	}
	return section{Table: t}
}

func passages(r *about.Report) []passage {
	if r.Divergence == nil {
		return nil
	}
	var list []passage
	for _, p := range r.Divergence.Passages {
		list = append(list, passage{
			Before: p.Before, Next: p.Next,
			Where: fmt.Sprintf("window %d, position %d: %s nats; marked is what the text goes on with", p.Window, p.Position, short(p.KL)),
			Sides: []side{{"source", percents(p.Source)}, {"package", percents(p.Package)}},
		})
	}
	return list
}

func percents(list []about.Probability) []probability {
	out := make([]probability, len(list))
	for i, p := range list {
		out[i] = probability{visible(p.Token), strconv.FormatFloat(100*p.Probability, 'f', 1, 64) + " %"}
	}
	return out
}

// visible replaces white space at the ends of a token, which a reader would not notice, by signs.
func visible(s string) string {
	return strings.NewReplacer(" ", "␣", "\n", "↵", "\t", "⇥").Replace(s)
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
