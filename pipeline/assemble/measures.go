package assemble

import (
	"maps"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
	"github.com/llmexport/llmexport/verify"
)

// headline is the one of a check's numbers that a table shows, with its limit.
var headline = map[string]struct{ value, limit, sense, unit string }{
	"graph":       {"kl", "limit", "<=", "nats"},
	"layers":      {"worst", "limit", "<=", ""},
	"source":      {"perplexity", "limit", "<=", ""},
	"perplexity":  {"ratio", "limit", "<=", ""},
	"kl":          {"kl", "limit", "<=", "nats"},
	"decode":      {"kl", "limit", "<=", "nats"},
	"positions":   {"kl", "limit", "<=", "nats"},
	"activations": {"largest", "", "", ""},
	"weights":     {"worst_share_of_bound", "", "", "of bound"},
}

// Measures turns the result of a verification into table rows: checks, then metrics.
func Measures(r *verify.Result) (checks, metrics []about.Measure) {
	for _, c := range r.Checks {
		m := about.Measure{Name: c.Name, Outcome: about.Passed, Detail: c.Detail}
		switch {
		case c.Skipped:
			m.Outcome = about.Skipped
		case !c.Passed:
			m.Outcome = about.Failed
		}
		if h, ok := headline[c.Name]; ok {
			v, ok := c.Value[h.value]
			if !ok { // without the source there is nothing to divide by
				v, ok = c.Value[c.Name]
			}
			if ok {
				m.Value, m.Unit = &v, h.unit
			}
			if l, ok := c.Value[h.limit]; ok && h.sense != "" {
				m.Limit = h.sense + " " + formatNumber(l)
			}
		}
		checks = append(checks, m)
	}
	return checks, metricRows(r.Metrics)
}

func metricRows(m map[string]manifest.Metric) []about.Measure {
	var rows []about.Measure
	for _, n := range slices.Sorted(maps.Keys(m)) {
		v := m[n].Value
		rows = append(rows, about.Measure{Name: n, Value: &v, StdErr: m[n].StdErr})
	}
	return rows
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// probeMeasures are the divergences on the probe of a calibration, which may be nil.
func probeMeasures(c *about.Calibration) []about.Measure {
	if c == nil {
		return nil
	}
	rows := []about.Measure{{Name: "kl_probe", Value: &c.ProbeKL}}
	if c.PredictedKL > 0 {
		rows = append(rows, about.Measure{Name: "kl_predicted", Value: &c.PredictedKL})
	}
	return rows
}
