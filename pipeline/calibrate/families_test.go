package calibrate

import (
	"testing"

	"github.com/llmexport/llmexport/quant"
)

// All methods in all families, on random models at 4 bits: gptq leaves less of a divergence than rtn, on text that it did
// not see, and with foldings and tuning everything is found and put back where it belongs.
func TestFamilies(t *testing.T) {
	awq, gptq, distill := quant.NewAWQ(), quant.NewGPTQ(), quant.NewDistill()
	awq.Step, gptq.Candidates = 0.4, 4
	distill.Steps, distill.Tokens = 2, 192
	for i, name := range known(t) {
		if testing.Short() && i%12 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d, src := openCheckpoint(t, familyDir(name))
			all := randomText(d, 28, 48)
			text, probe := all[:24], all[24:]
			kl := func(methods ...quant.Method) float64 {
				j := newJob(t, d, src, text, methods...)
				j.Dir = t.TempDir()
				f := j.run(t, j.Dir)
				var err error
				if j.Chain.Tuner != nil {
					f, err = Tune(t.Context(), j.Options, j.Scheme, f)
					check(t, err)
				}
				kl, err := Divergence(t.Context(), j.Options, j.Scheme, f, probe)
				check(t, err)
				return kl
			}
			nearest, plain, folded := kl(quant.RTN{}), kl(gptq), kl(awq, gptq, distill)
			t.Logf("KL of rtn %.3g, gptq %.3g, awq, gptq and distill %.3g", nearest, plain, folded)
			if !(plain < nearest) || !(folded < nearest) {
				t.Errorf("KL of rtn %g, gptq %g, awq, gptq and distill %g", nearest, plain, folded)
			}
		})
	}
}
