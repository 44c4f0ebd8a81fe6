package stage_test

import (
	"testing"

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
