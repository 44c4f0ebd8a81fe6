package stage_test

import (
	"math"
	"os"
	"testing"

	"github.com/llmexport/llmexport/pipeline"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/publish/manifest"
)

// What a trial predicts is what is measured after the model is encoded, with the same text if that is short, for methods and
// families of all kinds; and a limit on the divergence is kept, and nearly used.
func TestPredicted(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	for _, c := range []struct {
		name, quantize string
		limit          float64
	}{
		{"qwen3_moe", "{method: gptq, budget: {bpw: 5.5}}", 0},
		{"qwen3_next", "{method: [awq, search], budget: {bpw: 4.5}}", 0},
		{"gemma2", "{method: gptq, budget: {kl: 0.003}}", 0.003},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWork(t, families+c.name, watch+"quantize: "+c.quantize+"\n"+unverified)
			w.must(t)
			m, err := manifest.Open(w.out())
			if err != nil {
				t.Fatal(err)
			}
			predicted, measured := m.Metrics["kl_predicted"].Value, m.Metrics["kl_probe"].Value
			if predicted != measured || !(measured > 0) {
				t.Errorf("%g nats, predicted %g", measured, predicted)
			}
			if c.limit > 0 && (measured > c.limit || measured < 0.7*c.limit) {
				t.Errorf("%g nats for a limit of %g", measured, c.limit)
			}
		})
	}
}

// sampledNear is the most that a prediction from some layers may differ from that of the whole trial, relative to it. For the trained models
// of 4 to 8 layers, with half of these encoded, at 4 and 3 bits, it is 6 %.
const sampledNear = 0.12

// What a trial of two of the four layers predicts is near what the whole trial does, and takes less.
func TestSampledTrial(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	src, err := source.Open(t.Context(), source.Origin{Dir: tiny}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	// trial returns the prediction, and the estimated seconds of allocating.
	trial := func(budget string, whole int) (kl, seconds float64) {
		run := followed(t, dir, new([]pipeline.State), "quantize.budget="+budget, "calibrate={tokens: 2048, window: 64, probe: 1024}")
		run.SampleTrials(whole, 2)
		if _, err := run.Execute(t.Context(), "allocate"); err != nil {
			t.Fatal(err)
		}
		var a allocated
		work{dir}.readOne(t, "allocation-*/allocation.json", &a)
		if err := os.RemoveAll(run.Allocation.Path); err != nil {
			t.Fatal(err)
		}
		pl, err := run.Plan(src, nil)
		if err != nil {
			t.Fatal(err)
		}
		run.Rates = func(int) effort.Rates { return estimate.Typical(1) }
		e, err := run.Estimate(pl, "allocation")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range e.Stages {
			if s.Stage == "allocate" {
				seconds = s.Seconds
			}
		}
		return a.KL, seconds
	}
	for _, budget := range []string{"{bpw: 4}", "{bpw: 3}"} {
		want, long := trial(budget, tinyLayers)
		got, short := trial(budget, tinyLayers-1)
		t.Logf("%s: %.5f nats, %.5f of two layers; %.2f and %.2f s estimated", budget, want, got, long, short)
		if got == want || !(math.Abs(got-want) < sampledNear*want) {
			t.Errorf("%s: %g nats, %g of two layers", budget, want, got)
		}
		if !(short > 0 && short < 0.8*long) {
			t.Errorf("%s: %g s, %g of two layers", budget, long, short)
		}
	}
}
