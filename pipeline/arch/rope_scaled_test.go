package arch

import (
	"math"
	"slices"
	"testing"
)

// scaledTolerance is relative. Yarn finds its ramp by a difference of two logarithms and blends two frequencies, which loses
// two digits of the sixteen.
const scaledTolerance = 1e-13

// TestRopeScaled compares with the rules of transformers evaluated to 60 digits with Python's decimal module and rounded once:
//
//	yarn:    e(r) = d*ln(orig/(2*PI*r)) / (2*ln(theta)), lo = e(fast), hi = e(slow), floor and ceil unless exact, within [0, d-1],
//	         equal ends .001 apart; r = clamp((j-lo)/(hi-lo), 0, 1); f/factor*r + f*(1-r); times 0.1*mscale*ln(factor) + 1
//	longrope times sqrt(1 + ln(factor)/ln(orig))
//	dynamic: theta * alpha**(d/(d-2))
func TestRopeScaled(t *testing.T) {
	ones := slices.Repeat([]float64{1}, 8)
	for _, tt := range []struct {
		name  string
		p     ropeParams
		want  []float64
		scale float64
	}{
		{"gpt-oss", ropeParams{kind: "yarn", theta: 150000, factor: 32, original: 4096, fast: 32, slow: 1, exact: true}, []float64{1.0,
			0.22541800020287084, 0.050813274815461475, 0.006794959489732218, 0.00045648391922324016, 1.818833668168956e-05,
			4.09997848180298e-06, 9.242089502428302e-07}, 1.3465735902799727},
		{"Qwen with yarn", ropeParams{kind: "yarn", theta: 1e6, factor: 4, original: 32768, fast: 32, slow: 1}, []float64{1.0,
			0.1778279410038923, 0.03162277660168379, 0.004217559938927618, 0.0005, 4.445698525097307e-05, 7.905694150420949e-06,
			1.4058533129758728e-06}, 1.138629436111989},
		{"DeepSeek-V2", ropeParams{kind: "yarn", theta: 1e4, factor: 40, original: 4096, fast: 32, slow: 1, mscale: 0.707, mscaleAll: 0.707},
			[]float64{1.0, 0.1, 0.005125, 2.5e-05}, 1},
		{"one of two scales", ropeParams{kind: "yarn", theta: 1e4, factor: 40, original: 4096, fast: 32, slow: 1, mscale: 0.707},
			[]float64{1.0, 0.1, 0.005125, 2.5e-05}, 1.3688879454113936},
		{"a multiplier of its own", ropeParams{kind: "yarn", theta: 1e4, factor: 40, original: 4096, fast: 32, slow: 1, attention: 1.25, mscale: 1, mscaleAll: 2},
			[]float64{1.0, 0.1, 0.005125, 2.5e-05}, 1.25},
		{"an original length of 1", ropeParams{kind: "yarn", theta: 1e4, factor: 8, original: 1, fast: 32, slow: 32},
			[]float64{1.0, 0.1, 0.01, 0.001}, 1.2079441541679836},
		{"Phi-3 128k", ropeParams{kind: "longrope", theta: 1, factor: 32, original: 4096, short: ones, long: ones}, ones, 1.1902380714238083},
		{"short context", ropeParams{kind: "longrope", theta: 1, factor: 0.5, original: 4096, short: ones, long: ones}, ones, 1},
		{"Hunyuan", ropeParams{kind: "dynamic", theta: 1e4, alpha: 1000}, []float64{1.0, 0.11787686347935873, 0.013894954943731377,
			0.0016378937069540642, 0.000193069772888325, 2.2758459260747885e-05, 2.6826957952797257e-06, 3.162277660168379e-07}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.p.table(2 * len(tt.want))
			if math.Abs(r.Scale-tt.scale) > scaledTolerance {
				t.Errorf("times %v, want %v", r.Scale, tt.scale)
			}
			for j, want := range tt.want {
				if got := r.InvFreq[j]; math.Abs(got-want) > scaledTolerance*want {
					t.Errorf("pair %d: %v, want %v", j, got, want)
				}
			}
		})
	}
}
