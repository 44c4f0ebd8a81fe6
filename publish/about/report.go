package about

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/llmexport/llmexport/internal/sheet"
	"github.com/llmexport/llmexport/publish/manifest"
)

// ReportName is the file name of a report.
const ReportName = "report.json"

// Report summarizes how a package was made and verified.
type Report struct {
	Name          string          `json:"name"`
	Hub           string          `json:"hub,omitempty"`
	Repo          string          `json:"repo,omitempty"`
	Revision      string          `json:"revision,omitempty"`
	Target        manifest.Target `json:"target"`
	MinimumEngine string          `json:"minimum_engine"`
	Verified      bool            `json:"verified"`
	Specs         []SpecSummary   `json:"specs,omitempty"`
	// PackageBytes is the size of the files that a device loads, which excludes the report.
	PackageBytes int64 `json:"package_bytes"`
	// DeviceBytes is the memory that the package needs on a device, 0 if unknown.
	DeviceBytes int64     `json:"device_bytes,omitempty"`
	Checks      []Measure `json:"checks,omitempty"`
	Metrics     []Measure `json:"metrics,omitempty"`
	// Calibration is absent from packages whose codes depend only on the weights.
	Calibration *Calibration `json:"calibration,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"`
	// Timings are left out of the package, so that its bytes are reproducible.
	Timings []Timing `json:"timings,omitempty"`
}

// Timing is the wall time of one stage.
type Timing struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
}

// JSON returns the report in canonical form, including timings.
func (r Report) JSON() ([]byte, error) { return manifest.Canonical(r) }

// PackageJSON returns the report for the package, without timings.
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
	facts := sheet.New()
	facts.Row("package", r.Name)
	if r.Repo != "" {
		facts.Row("source", strings.TrimSuffix(manifest.Source{Hub: r.Hub, Repo: r.Repo}.Name()+" @ "+r.Revision, " @ "))
	}
	facts.Row("target", strings.TrimSpace("MNN "+r.Target.Engine+" "+strings.Join(r.Target.Backends, ", ")))
	facts.Row("needs", "MNN "+r.MinimumEngine)
	facts.Row("size", sheet.Size(r.PackageBytes))
	if r.DeviceBytes > 0 {
		facts.Row("device memory", sheet.Size(r.DeviceBytes))
	}
	facts.Row("verdict", verdict)
	specs := sheet.New("storage", ">tensors", ">bytes")
	for _, s := range r.Specs {
		specs.Row(s.Spec, s.Tensors, s.Bytes)
	}
	checks := sheet.New("check", "result", ">value", "limit")
	for _, c := range r.Checks {
		checks.Row(c.Name, string(c.Outcome), c.valueText(), c.Limit)
	}
	metrics := sheet.New("measure", ">value", ">standard error")
	for _, m := range r.Metrics {
		metrics.Row(m.Name, m.valueText(), number(m.StdErr))
	}
	timings := sheet.New("stage", ">time")
	for _, x := range r.Timings {
		timings.Row(x.Stage, time.Duration(x.Seconds*float64(time.Second)).Round(10*time.Millisecond).String())
	}
	errs := []error{facts.Write(&b, true), specs.Write(&b, false), r.Calibration.write(&b), checks.Write(&b, false)}
	for _, c := range r.Checks {
		if c.Detail != "" && c.Outcome != Passed {
			fmt.Fprintf(&b, "%s: %s\n", sheet.Plain(c.Name), sheet.Plain(c.Detail))
		}
	}
	errs = append(errs, metrics.Write(&b, false), timings.Write(&b, false))
	if len(r.Warnings) > 0 {
		b.WriteByte('\n')
		for _, x := range r.Warnings {
			fmt.Fprintf(&b, "warning: %s\n", sheet.Plain(x))
		}
	}
	_, err := io.WriteString(w, b.String())
	return errors.Join(append(errs, err)...)
}
