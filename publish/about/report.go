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
	Name string `json:"name"`
	// Tool is the program and its version.
	Tool          string          `json:"tool,omitempty"`
	Hub           string          `json:"hub,omitempty"`
	Repo          string          `json:"repo,omitempty"`
	Revision      string          `json:"revision,omitempty"`
	Target        manifest.Target `json:"target"`
	MinimumEngine string          `json:"minimum_engine"`
	Verified      bool            `json:"verified"`
	Specs         []SpecSummary   `json:"specs,omitempty"`
	// Bits maps the bits of matrices, nil if the package has no layers with names of this program.
	Bits *BitMap `json:"bits,omitempty"`
	// PackageBytes is the size of the files that a device loads, which excludes the report.
	PackageBytes int64 `json:"package_bytes"`
	// SourceBytes is the size of the weight files of the checkpoint, 0 if unknown.
	SourceBytes int64 `json:"source_bytes,omitempty"`
	// DeviceBytes is the memory that the package needs on a device, 0 if unknown, with DeviceContext tokens of context.
	DeviceBytes   int64     `json:"device_bytes,omitempty"`
	DeviceContext int       `json:"device_context,omitempty"`
	Checks        []Measure `json:"checks,omitempty"`
	Metrics       []Measure `json:"metrics,omitempty"`
	// Divergence is absent if the package was not compared with the weights of its source.
	Divergence *Divergence `json:"divergence,omitempty"`
	// LayerErrors are the relative errors of the hidden state after each layer, LayerLimit the largest acceptable one.
	LayerErrors []float64 `json:"layer_errors,omitempty"`
	LayerLimit  float64   `json:"layer_limit,omitempty"`
	// Matrices are those with the largest errors of their weights, if there is no calibration, which lists all.
	Matrices []OpError `json:"matrices,omitempty"`
	// Backends is the knowledge about backends of the engine.
	Backends []Backend `json:"backends,omitempty"`
	// Calibration is absent from packages whose codes depend only on the weights.
	Calibration *Calibration `json:"calibration,omitempty"`
	// Warnings are sentences that the user can act on, Notes those about what nobody can change: they are in files only.
	Warnings []string `json:"warnings,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	// Conditions are those of the manifest.
	Conditions []string `json:"conditions,omitempty"`
	// Timings are left out of the package, so that its bytes are reproducible.
	Timings []Timing `json:"timings,omitempty"`
}

// Backend says whether a backend of the engine computes packages like this one correctly.
type Backend struct {
	Name string `json:"name"`
	// Verdict is a phrase such as "right" or "wrong results".
	Verdict string `json:"verdict"`
	// Evidence says how that is known.
	Evidence string   `json:"evidence"`
	Problems []string `json:"problems,omitempty"`
}

// NewReport returns what a manifest says about a package: everything but its cost, calibration and times.
func NewReport(m *manifest.Manifest) *Report {
	r := &Report{
		Name: m.Name, Tool: strings.TrimSpace(m.Tool.Name + " " + m.Tool.Version),
		Hub: m.Source.Hub, Repo: m.Source.Repo, Revision: m.Source.Revision, Target: m.Target,
		MinimumEngine: m.MinimumEngine, Verified: m.Verified, Specs: Specs(m.Tensors), Bits: BitsOf(m.Tensors), PackageBytes: m.Bytes(),
		Conditions: m.Conditions,
	}
	for _, f := range m.Source.Files {
		if strings.HasSuffix(f.Name, ".safetensors") {
			r.SourceBytes += f.Size
		}
	}
	return r
}

// SetLayers takes the errors of layers from the numbers of a check.
func (r *Report) SetLayers(checks []manifest.Check) {
	r.LayerErrors, r.LayerLimit = nil, 0
	for _, c := range checks {
		for i := range maxLayers {
			e, ok := c.Value[fmt.Sprintf("layer_%d", i)]
			if !ok {
				break
			}
			r.LayerErrors, r.LayerLimit = append(r.LayerErrors, e), c.Value["limit"]
		}
	}
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

// WriteText prints the report for a terminal, in plain ASCII without colour as far as names allow: verdict and quality first.
// The details of failed checks are left to the error that ends the command.
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
	facts.Row("quality", r.Quality())
	errs := []error{facts.Write(&b, true)}
	specs := sheet.New("storage", ">tensors", ">bytes")
	for _, s := range r.Specs {
		specs.Row(s.Spec, s.Tensors, s.Bytes)
	}
	checks := sheet.New("check", "result", ">value", "limit")
	for _, c := range r.Checks {
		checks.Row(c.Name, string(c.Outcome), c.Text(), c.Limit)
	}
	errs = append(errs, specs.Write(&b, false), r.Calibration.write(&b), checks.Write(&b, false))
	for _, c := range r.Checks {
		if c.Detail != "" && c.Outcome == Skipped {
			fmt.Fprintf(&b, "%s: %s\n", sheet.Plain(c.Name), sheet.Plain(c.Detail))
		}
	}
	metrics := sheet.New("measure", ">value", ">standard error")
	for _, m := range r.Metrics {
		metrics.Row(m.Name, m.Text(), m.ErrorText())
	}
	timings := sheet.New("stage", ">time")
	for _, x := range r.Timings {
		timings.Row(x.Stage, time.Duration(x.Seconds*float64(time.Second)).Round(10*time.Millisecond).String())
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
