package publish

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/llmexport/llmexport/publish/manifest"
)

// ReportName is the file name of a report.
const ReportName = "report.json"

// Report sums up how a package came out.
type Report struct {
	Name          string          `json:"name"`
	Repo          string          `json:"repo,omitempty"`
	Revision      string          `json:"revision,omitempty"`
	Target        manifest.Target `json:"target"`
	MinimumEngine string          `json:"minimum_engine"`
	Verified      bool            `json:"verified"`
	Specs         []SpecSummary   `json:"specs,omitempty"`
	// PackageBytes is the size of what a device loads; the report itself is no part of it.
	PackageBytes int64 `json:"package_bytes"`
	// DeviceBytes is the memory that the package needs on a device, 0 when it was not estimated.
	DeviceBytes int64     `json:"device_bytes,omitempty"`
	Checks      []Measure `json:"checks,omitempty"`
	Metrics     []Measure `json:"metrics,omitempty"`
	Warnings    []string  `json:"warnings,omitempty"`
	// Timings say how long each stage took. They stay out of the package, whose bytes are the same for
	// every run.
	Timings []Timing `json:"timings,omitempty"`
}

// Timing is the wall time of one stage.
type Timing struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// JSON is the report in canonical form, timings included.
func (r Report) JSON() ([]byte, error) { return manifest.Canonical(r) }

// PackageJSON is the report as it goes into the package: without what differs between two runs.
func (r Report) PackageJSON() ([]byte, error) {
	r.Timings = nil
	return r.JSON()
}

// WriteText prints the report for a terminal, in plain ASCII without colour as far as names allow.
func (r Report) WriteText(w io.Writer) error {
	verdict := "verified"
	if !r.Verified {
		verdict = "NOT VERIFIED"
	}
	var b strings.Builder
	facts := newTable()
	facts.AppendRow(table.Row{"package", plain(r.Name)})
	if r.Repo != "" {
		facts.AppendRow(table.Row{"source", plain(strings.TrimSuffix(r.Repo+" @ "+r.Revision, " @ "))})
	}
	facts.AppendRow(table.Row{"target", plain(strings.TrimSpace("MNN " + r.Target.Engine + " " + strings.Join(r.Target.Backends, ", ")))})
	facts.AppendRow(table.Row{"needs", plain("MNN " + r.MinimumEngine)})
	facts.AppendRow(table.Row{"size", bytesText(r.PackageBytes)})
	if r.DeviceBytes > 0 {
		facts.AppendRow(table.Row{"device memory", bytesText(r.DeviceBytes)})
	}
	facts.AppendRow(table.Row{"verdict", verdict})
	render(&b, facts)

	if len(r.Specs) > 0 {
		t := newTable("storage", "tensors", "bytes")
		right(t, 2, 3)
		for _, s := range r.Specs {
			t.AppendRow(table.Row{plain(s.Spec), s.Tensors, s.Bytes})
		}
		render(&b, t)
	}
	if len(r.Checks) > 0 {
		t := newTable("check", "result", "value", "limit")
		right(t, 3)
		for _, c := range r.Checks {
			t.AppendRow(table.Row{plain(c.Name), string(c.Outcome), plain(c.valueText()), plain(c.Limit)})
		}
		render(&b, t)
		for _, c := range r.Checks {
			if c.Detail != "" && c.Outcome != Passed {
				fmt.Fprintf(&b, "%s: %s\n", plain(c.Name), plain(c.Detail))
			}
		}
	}
	if len(r.Metrics) > 0 {
		t := newTable("measure", "value", "standard error")
		right(t, 2, 3)
		for _, m := range r.Metrics {
			t.AppendRow(table.Row{plain(m.Name), plain(m.valueText()), number(m.StdErr)})
		}
		render(&b, t)
	}
	if len(r.Timings) > 0 {
		t := newTable("stage", "time")
		right(t, 2)
		for _, x := range r.Timings {
			d := time.Duration(x.Seconds * float64(time.Second)).Round(10 * time.Millisecond)
			t.AppendRow(table.Row{plain(x.Stage), d.String()})
		}
		render(&b, t)
	}
	if len(r.Warnings) > 0 {
		b.WriteByte('\n')
		for _, x := range r.Warnings {
			fmt.Fprintf(&b, "warning: %s\n", plain(x))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// newTable has no lines, so that its columns can be cut and pasted.
func newTable(header ...string) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	if len(header) > 0 {
		row := make(table.Row, len(header))
		for i, h := range header {
			row[i] = h
		}
		t.AppendHeader(row)
	}
	return t
}

func right(t table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

// render adds a table below a blank line, without the blanks that fill up its last column.
func render(b *strings.Builder, t table.Writer) {
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	for line := range strings.SplitSeq(t.Render(), "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// plain keeps text of others from moving the cursor of a terminal.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

func bytesText(n int64) string {
	exact := strconv.FormatInt(n, 10) + " bytes"
	const units = "KMGT"
	v, unit := float64(n), -1
	for v >= 1024 && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	if unit < 0 {
		return exact
	}
	return fmt.Sprintf("%s (%.1f %ciB)", exact, v, units[unit])
}
