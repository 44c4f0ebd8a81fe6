package arch

import (
	"math"
	"testing"
)

// ropeTolerance is relative. The table is computed in float64 from correctly rounded powers; the blend
// of llama3 subtracts numbers of similar size and loses at most two digits.
const ropeTolerance = 1e-14

// TestRopeTable compares with the rules of transformers (modeling_rope_utils.py) evaluated to 60 digits
// with Python's decimal module and rounded once:
//
//	f = D(theta)**(-D(2*j)/D(d)); w = 2*PI/f
//	linear: f/factor
//	llama3: f/factor if w > orig/low; f if w < orig/high; else
//	        (1-t)*f/factor + t*f with t = (orig/w-low)/(high-low)
func TestRopeTable(t *testing.T) {
	base1e6 := []float64{1.0, 0.4216965034285822, 0.1778279410038923, 0.07498942093324558, 0.03162277660168379,
		0.01333521432163324, 0.005623413251903491, 0.0023713737056616554, 0.001, 0.00042169650342858224,
		0.00017782794100389227, 7.498942093324559e-05, 3.1622776601683795e-05, 1.333521432163324e-05,
		5.623413251903491e-06, 2.3713737056616552e-06}
	quarter := make([]float64, len(base1e6))
	for j, f := range base1e6 {
		quarter[j] = f / 4
	}
	for _, tt := range []struct {
		name string
		p    ropeParams
		want []float64
	}{
		{"default", ropeParams{kind: "default", theta: 1e6}, base1e6},
		{"linear", ropeParams{kind: "linear", theta: 1e6, factor: 4}, quarter},
		{"llama3 of the small checkpoint", ropeParams{kind: "llama3", theta: 5e5, factor: 8, low: 1, high: 4, original: 64}, []float64{1.0, 0.0794030091792082,
			0.004700753866357992, 0.0009115830921521387, 0.00017677669529663688, 3.428102195952591e-05,
			6.647869871181235e-06, 1.2891731721515574e-06}},
		{"llama3 with nothing between its bounds", ropeParams{kind: "llama3", theta: 5e5, factor: 16, low: 128, high: 128, original: 8192}, []float64{1.0,
			0.19392274474868576, 0.002350376933178996, 0.00045579154607606933, 8.838834764831844e-05, 1.7140510979762956e-05,
			3.3239349355906177e-06, 6.445865860757787e-07}},
		{"Llama 3.2 1B", ropeParams{kind: "llama3", theta: 5e5, factor: 32, low: 1, high: 4, original: 8192}, []float64{1.0, 0.6636012376960885, 0.44036660267178046,
			0.2922278225730151, 0.19392274474868576, 0.12868737343265052, 0.08539710028576561, 0.05666962144529105,
			0.03760603093086393, 0.024955408670558694, 0.016560440080994446, 0.010989528534539826, 0.007292664737217109,
			0.004839421345719893, 0.003211445994752591, 0.0012905479282092638, 0.0004295567965593682, 9.708287802627673e-05,
			1.9461638184831125e-05, 1.291476718704739e-05, 8.570255489881478e-06, 5.687232150457046e-06, 3.7740542941082826e-06,
			2.5044671007024935e-06, 1.6619674677953088e-06, 1.102883668639601e-06, 7.318749675440419e-07, 4.856731343010108e-07,
			3.2229329303788936e-07, 2.1387422816109149e-07, 1.4192720251899592e-07, 9.41830672543491e-08}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.p.table(2 * len(tt.want))
			if r.Type != tt.p.kind || r.Dim != 2*len(tt.want) || len(r.InvFreq) != len(tt.want) {
				t.Fatalf("%s, %d dimensions, %d frequencies", r.Type, r.Dim, len(r.InvFreq))
			}
			for j, want := range tt.want {
				got := r.InvFreq[j]
				if math.Abs(got-want) > ropeTolerance*want || tt.p.kind == "default" && got != want {
					t.Errorf("pair %d: %v, want %v", j, got, want)
				}
			}
		})
	}
}

// TestRopeExtremes goes to the bounds that readRope and readHeads allow.
func TestRopeExtremes(t *testing.T) {
	for _, theta := range []float64{1, 1 + 1e-15, 1e15} {
		for _, dim := range []int{2, 4, 6, maxHeadDim} {
			f := inverseFrequencies(theta, dim)
			if len(f) != dim/2 || f[0] != 1 {
				t.Fatalf("theta %v, dim %d: %v", theta, dim, f)
			}
			for j, got := range f {
				want := math.Pow(theta, -2*float64(j)/float64(dim))
				if !(math.Abs(got-want) <= 1e-13*want) {
					t.Fatalf("theta %v, dim %d, pair %d: %v, want %v", theta, dim, j, got, want)
				}
			}
		}
	}
}
