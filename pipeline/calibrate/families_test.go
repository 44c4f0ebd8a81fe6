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
		if testing.Short() && i%48 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, src := openCheckpoint(t, familyDir(name))
			windows := randomText(d, 28, 48)
			text, probe := windows[:24], windows[24:]
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
			all := []quant.Method{awq, gptq, distill}
			if Check(d, chainOf(t, all...)) != nil {
				all = all[:2]
			}
			nearest, plain, folded := kl(quant.RTN{}), kl(gptq), kl(all...)
			t.Logf("KL of rtn %.3g, gptq %.3g, with foldings and tuning %.3g", nearest, plain, folded)
			if !(plain < nearest) || !(folded < nearest) {
				t.Errorf("KL of rtn %g, gptq %g, with foldings and tuning %g", nearest, plain, folded)
			}
		})
	}
}
