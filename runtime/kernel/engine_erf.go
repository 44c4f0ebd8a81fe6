package kernel

import "math"

// erf is the error function in float64, with the rational approximations of the C library that the engine calls (glibc
// before 2.41) in its order of summation. Results near -1 have few digits left when 1 is added, and there the last bits
// show.
func erf(x float64) float64 {
	const (
		root    = 1.28379167095512586316e-01 // 2/sqrt(pi) - 1
		near1   = 8.45062911510467529297e-01 // about erf(1)
		smaller = 1 / .35
	)
	a := math.Abs(x)
	switch {
	case a < 0x1p-28:
		return x + float64(root*x)
	case a < 0.84375:
		z := float64(x * x)
		return x + float64(x*(pairs(z, erfNum0[:])/pairs(z, erfDen0[:])))
	case a < 1.25:
		s := a - 1
		return math.Copysign(near1+pairs(s, erfNum1[:])/pairs(s, erfDen1[:]), x)
	case a < 6:
		s, num, den := 1/float64(a*a), erfNum3[:], erfDen3[:]
		if a < smaller {
			num, den = erfNum2[:], erfDen2[:]
		}
		z := math.Float64frombits(math.Float64bits(a) &^ (1<<32 - 1)) // the square is exact
		r := float64(Exp(-float64(z*z)-0.5625) * Exp(float64((z-a)*(z+a))+pairs(s, num)/pairs(s, den)))
		return math.Copysign(1-r/a, x)
	}
	return math.Copysign(1, x) // also for a NaN
}

// pairs is c[0] + c[1] s + c[2] s² + ..., summed as (c[0] + c[1] s) + s² (c[2] + c[3] s) + ...
func pairs(s float64, c []float64) float64 {
	s2 := float64(s * s)
	s4 := float64(s2 * s2)
	powers := [...]float64{1, s2, s4, float64(s4 * s2), float64(s4 * s4)}
	sum := 0.
	for i := 0; i < len(c); i += 2 {
		t := c[i]
		if i+1 < len(c) {
			t += float64(s * c[i+1])
		}
		sum += float64(powers[i/2] * t)
	}
	return sum
}

// Numerators and denominators of erf(x)/x - 1 up to 0.84375, of erf(x) - near1 up to 1.25, and of
// log(x erfc(x)) + x² + 0.5625 up to 1/0.35 and up to 6. They are those of Sun's C library of 1993.
var (
	erfNum0 = [...]float64{1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02, -5.77027029648944159157e-03,
		-2.37630166566501626084e-05}
	erfDen0 = [...]float64{1, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03, 1.32494738004321644526e-04,
		-3.96022827877536812320e-06}
	erfNum1 = [...]float64{-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01, 3.18346619901161753674e-01,
		-1.10894694282396677476e-01, 3.54783043256182359371e-02, -2.16637559486879084300e-03}
	erfDen1 = [...]float64{1, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02, 1.26171219808761642112e-01,
		1.36370839120290507362e-02, 1.19844998467991074170e-02}
	erfNum2 = [...]float64{-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01, -6.23753324503260060396e+01,
		-1.62396669462573470355e+02, -1.84605092906711035994e+02, -8.12874355063065934246e+01, -9.81432934416914548592e+00}
	erfDen2 = [...]float64{1, 1.96512716674392571292e+01, 1.37657754143519042600e+02, 4.34565877475229228821e+02, 6.45387271733267880336e+02,
		4.29008140027567833386e+02, 1.08635005541779435134e+02, 6.57024977031928170135e+00, -6.04244152148580987438e-02}
	erfNum3 = [...]float64{-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e+01, -1.60636384855821916062e+02,
		-6.37566443368389627722e+02, -1.02509513161107724954e+03, -4.83519191608651397019e+02}
	erfDen3 = [...]float64{1, 3.03380607434824582924e+01, 3.25792512996573918826e+02, 1.53672958608443695994e+03, 3.19985821950859553908e+03,
		2.55305040643316442583e+03, 4.74528541206955367215e+02, -2.24409524465858183362e+01}
)
