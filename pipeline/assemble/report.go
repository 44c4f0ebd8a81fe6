package assemble

import (
	"slices"

	"github.com/llmexport/llmexport/backends"
	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/verify"
)

// report describes the package, and adds the divergences of the probe of a calibration to the manifest.
func (a *Package) report(res *verify.Result) *about.Report {
	r := about.NewReport(a.m)
	r.DeviceBytes, r.DeviceContext = a.Memory().Total(DeviceContext), DeviceContext
	r.Checks, r.Metrics = res.Measures()
	for _, m := range probeMeasures(a.Calibration) {
		if a.m.Metrics == nil {
			a.m.Metrics = map[string]manifest.Metric{}
		}
		a.m.Metrics[m.Name] = manifest.Metric{Value: *m.Value}
		r.Metrics = append(r.Metrics, m)
	}
	r.SetLayers(res.Checks)
	r.Divergence, r.Calibration, r.Notes = res.Divergence, a.Calibration, slices.Clone(a.Source.Facts.Warnings)
	if a.Calibration == nil {
		r.Matrices = res.Matrices
	}
	f := a.features()
	for _, name := range backends.ProfileNames() {
		r.Backends = append(r.Backends, a.backend(name, &f))
	}
	return r
}

// backend is the knowledge about a backend for the package.
func (a *Package) backend(name string, f *backends.Features) about.Backend {
	b := about.Backend{Name: name, Verdict: "right"}
	p, err := backends.ProfileOf(name)
	if err != nil { // unreachable: it is one of the names
		return b
	}
	b.Evidence = p.Evidence()
	switch {
	case name != "cpu" && p.Driver == "":
		b.Verdict = "expected to be right"
		b.Evidence += "; no package was run on it"
	case name != "cpu":
		b.Evidence += ", with packages of the same kind in float32"
	case a.m.Verified:
		b.Evidence += ", where llmexport gives the engine's results; these bytes were run by llmexport"
	}
	worst := backends.Right
	for _, x := range a.Problems(p, f) {
		b.Problems = append(b.Problems, x.String())
		worst = max(worst, x.Rule.Verdict)
	}
	switch worst {
	case backends.Slow:
		b.Verdict = "right, but slow"
	case backends.Unknown:
		b.Verdict = "not known"
	case backends.Wrong:
		b.Verdict = "wrong results"
	case backends.Unsupported:
		b.Verdict = "does not run"
	}
	return b
}
