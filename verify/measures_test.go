package verify

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/publish/about"
	"github.com/llmexport/llmexport/publish/manifest"
)

// Tables show the number that a check names, with its limit; numbers that are not finite are left out.
func TestMeasures(t *testing.T) {
	t.Parallel()
	r := &Result{Metrics: map[string]manifest.Metric{"b": {Value: 2}, "a": {Value: 1, StdErr: 0.5}}}
	within, _ := atMost(0.1, 0.15, "nats", map[string]float64{}, "within")
	above, _ := atMost(math.NaN(), 2, "", map[string]float64{"ratio": math.NaN()}, "above")
	skipped, _ := skip("skipped")
	r.add(new(KL), within)
	r.add(new(Perplexity), above)
	r.add(golden{}, skipped)
	checks, metrics := r.Measures()
	if diff := cmp.Diff([]about.Measure{
		{Name: "kl", Value: new(0.1), Unit: "nats", Limit: "<= 0.15", Outcome: about.Passed, Detail: "within"},
		{Name: "perplexity", Limit: "<= 2", Outcome: about.Failed, Detail: "above"},
		{Name: "golden", Outcome: about.Skipped, Detail: "skipped"},
	}, checks); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]about.Measure{{Name: "a", Value: new(1.0), StdErr: 0.5}, {Name: "b", Value: new(2.0)}}, metrics); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"limit": 2}, r.Checks[1].Value); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	if d := Damaged(errors.New("bad")); len(d.Failed()) != 1 || len(d.headlines) != len(d.Checks) {
		t.Errorf("damaged: %v", d.Failed())
	}
}
