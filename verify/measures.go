package verify

import (
	"maps"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/publish/about"
)

// Measures returns the result as rows of tables: checks in order, and metrics by name.
func (r *Result) Measures() (checks, metrics []about.Measure) {
	for i, c := range r.Checks {
		m := about.Measure{Name: c.Name, Outcome: about.Passed, Detail: c.Detail}
		switch {
		case c.Skipped:
			m.Outcome = about.Skipped
		case !c.Passed:
			m.Outcome = about.Failed
		}
		if h := r.headlines[i]; h != nil {
			if finite(h.Value) {
				m.Value, m.Unit = &h.Value, h.Unit
			}
			if h.Limit != nil {
				m.Limit = "<= " + strconv.FormatFloat(*h.Limit, 'g', 4, 64)
			}
		}
		checks = append(checks, m)
	}
	for _, n := range slices.Sorted(maps.Keys(r.Metrics)) {
		v := r.Metrics[n].Value
		metrics = append(metrics, about.Measure{Name: n, Value: &v, StdErr: r.Metrics[n].StdErr})
	}
	return checks, metrics
}
