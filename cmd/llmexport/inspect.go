package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/runtime/mnn"
)

func (t *tool) inspectCommand() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show the contents of a package, of this program or another",
		ArgsUsage: "PACKAGE",
		Description: "The required engine release is derived from the contents of the package. Parts that cannot be read are reported\n" +
			"last.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "ops", Usage: "list every op of the graph"},
			jsonFlag(),
		},
		CustomHelpTemplate: help("llmexport inspect dist/qwen3-0.6b-int4", "llmexport inspect --ops --json ./Qwen3-0.6B-MNN"),
		Action:             t.inspect,
	}
}

// opLine is an op in JSON output.
type opLine struct {
	Name string `json:"name"`
	// Part is the part of the package that has the op; empty for the text model.
	Part string `json:"part,omitempty"`
	// Subgraph is the function that contains the op; empty for ops of the graph itself.
	Subgraph string    `json:"subgraph,omitempty"`
	Op       string    `json:"op"`
	Inputs   []string  `json:"inputs"`
	Outputs  []string  `json:"outputs"`
	Param    mnn.Param `json:"param,omitempty"`
}

func (t *tool) inspect(c *cli.Context) error {
	args, err := arguments(c, "PACKAGE")
	if err != nil {
		return err
	}
	o, err := look(args[0])
	if err != nil {
		return explained(c.Context, args[0], err)
	}
	var ops []opLine
	if c.Bool("ops") {
		for _, p := range o.all() {
			ops = append(ops, p.lines()...)
		}
	}
	if c.Bool("json") {
		err = t.printJSON(struct {
			*overview
			List []opLine `json:"ops,omitempty"`
		}{o, ops})
	} else {
		err = t.show(func(w io.Writer) error { return errors.Join(o.write(w), o.writeOps(w, ops)) })
	}
	if err != nil {
		return err
	}
	return explained(c.Context, args[0], errors.Join(o.problems...))
}

// writeOps prints a table of the ops of each part.
func (o *overview) writeOps(w io.Writer, ops []opLine) error {
	var errs []error
	for _, p := range o.all() {
		s := sheet.New(o.title("op", p), "name", "inputs", "outputs")
		for _, l := range ops {
			if l.Part == p.Name {
				s.Row(l.Op, l.Name, strings.Join(l.Inputs, " "), strings.Join(l.Outputs, " "))
			}
		}
		errs = append(errs, s.Write(w, false))
	}
	return errors.Join(errs...)
}

// lines lists the ops of a part; none if its graph could not be read.
func (p partFacts) lines() []opLine {
	g := p.graph
	if g == nil {
		return nil
	}
	var out []opLine
	for s, op := range g.AllOps() {
		tensors, subgraph := g.Tensors, ""
		if s > 0 {
			tensors, subgraph = g.Subgraphs[s-1].Tensors, g.Subgraphs[s-1].Name
		}
		names := func(ids []int32) []string {
			list := make([]string, len(ids))
			for i, id := range ids {
				list[i] = tensors[id]
			}
			return list
		}
		l := opLine{
			Name: op.Name, Part: p.Name, Subgraph: subgraph, Op: opName(op),
			Inputs: names(op.Inputs), Outputs: names(op.Outputs), Param: op.Param,
		}
		if _, ok := op.Param.(*mnn.Blob); ok { // a constant may be a large table
			l.Param = nil
		}
		out = append(out, l)
	}
	return out
}

func (o *overview) write(w io.Writer) error {
	s := sheet.New()
	s.Row("package", o.Dir)
	if m := o.Manifest; m != nil {
		verdict := "verified"
		if !m.Verified {
			verdict = "NOT VERIFIED"
		}
		s.Row("name", m.Name)
		s.Row("digest", m.Digest)
		s.Row("made by", m.Tool.Name+" "+m.Tool.Version)
		if m.Source != "" {
			s.Row("source", m.Source)
		}
		s.Row("target", strings.TrimSpace("MNN "+m.Target.Engine+" "+strings.Join(m.Target.Backends, ", ")))
		s.Row("verdict", fmt.Sprintf("%s, %d checks passed, %d skipped", verdict, m.Passed, m.Skipped))
		signed := "no"
		if m.Signed {
			signed = "yes, not verified"
		}
		s.Row("signed", signed)
		for _, x := range m.Conditions {
			s.Row("condition", x)
		}
	}
	if o.MinimumEngine != "" {
		s.Row("needs", "MNN "+o.MinimumEngine)
	}
	for _, x := range o.Reasons {
		s.Row("because", x)
	}
	if k := o.Tokenizer; k != nil {
		template := "without chat template"
		if k.ChatTemplate {
			template = "with chat template"
		}
		s.Row("tokenizer", fmt.Sprintf("vocabulary %d, %d special, stop %v, prefix %v, %s", k.Vocabulary, k.Special, k.Stop, k.Prefix, template))
	}
	errs := []error{s.Write(w, true)}

	for _, p := range o.all() {
		s = sheet.New(o.title("linear layers", p), ">matrices", ">weights", ">bytes")
		for _, g := range p.Linears {
			s.Row(g.storage.String(), g.Matrices, g.Weights, g.Bytes)
		}
		errs = append(errs, s.Write(w, false))

		s = sheet.New(o.title("op", p), ">count")
		for _, c := range p.Ops {
			s.Row(c.Op, c.Count)
		}
		errs = append(errs, s.Write(w, false))
	}

	s = sheet.New("config", "value")
	for _, k := range slices.Sorted(maps.Keys(o.Config)) {
		s.Row(k, shown(o.Config[k]))
	}
	errs = append(errs, s.Write(w, false))

	s = sheet.New("file", ">bytes")
	for _, f := range o.Files {
		s.Row(f.Name, f.Bytes)
	}
	return errors.Join(append(errs, s.Write(w, false))...)
}

// shown formats a value of the configuration on one line.
func shown(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	const most = 80
	r := []rune(strings.TrimSpace(b.String()))
	if len(r) > most {
		return string(r[:most]) + "..."
	}
	return string(r)
}
