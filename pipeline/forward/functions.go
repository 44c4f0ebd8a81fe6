package forward

import (
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// The functions below give the same bits on every machine, unlike those of package math, with errors that disappear when a
// result is rounded to float32. Products are converted before they are added, so that no compiler fuses them.

func sigmoid(x float64) float64 { return 1 / (1 + kernel.Exp(-x)) }

func tanh(x float64) float64 {
	a := math.Abs(x)
	if a < 1e-4 { // the next term is below 1e-16 of x
		return x - float64(x*float64(x*x))/3
	}
	e := kernel.Exp(-2 * a)
	return math.Copysign((1-e)/(1+e), x)
}

// functionBlock is how many numbers a function of many takes at most; they stay in the L1 cache.
const functionBlock = 256

// sigmoids replaces numbers by their sigmoid.
func sigmoids(x []float64) {
	for i, v := range x {
		x[i] = -v
	}
	kernel.ExpsInPlace(x)
	for i, e := range x {
		x[i] = 1 / (1 + e)
	}
}

// tanhs replaces numbers by their tanh.
func tanhs(x []float64) {
	var block [functionBlock]float64
	exps := block[:len(x)]
	for i, v := range x {
		exps[i] = -2 * math.Abs(v)
	}
	kernel.ExpsInPlace(exps)
	for i, v := range x {
		if math.Abs(v) < 1e-4 {
			x[i] = tanh(v)
			continue
		}
		x[i] = math.Copysign((1-exps[i])/(1+exps[i]), v)
	}
}

// over replaces numbers by tanh(x / limit), capped by limit times that.
func over(x []float64, limit float64) {
	for i, v := range x {
		x[i] = v / limit
	}
	tanhs(x)
}

func capped(x []float64, limit float64) {
	over(x, limit)
	for i, t := range x {
		x[i] = limit * t
	}
}

// expRest is exp(x) - 1 - x, from its series where the difference would lose digits.
func expRest(x float64) float64 {
	if math.Abs(x) >= 0.5 {
		return kernel.Exp(x) - 1 - x
	}
	term, sum := 0.5*float64(x*x), 0.0
	for n := 3.0; n < 16; n++ {
		sum += term
		term = float64(term*x) / n
	}
	return sum
}

// erfStep is the distance between the places in erfTable; beyond the last one erf is 1 in float64.
const erfStep = 1.0 / 16

// erfPlace holds erf and its derivative.
type erfPlace struct{ value, slope float64 }

// erfTable has its places at multiples of erfStep. All terms of the series 2/sqrt(pi) exp(-x²) (x + 2x³/3 + 4x⁵/15 + ...) have
// the same sign.
var erfTable = func() (t [6/erfStep + 1]erfPlace) {
	for k := range t {
		x := float64(float64(k) * erfStep)
		term, sum := x, 0.0
		for n := 3.0; sum+term != sum; n += 2 {
			sum += term
			term = float64(term*float64(2*float64(x*x))) / n
		}
		slope := 2 / math.Sqrt(math.Pi) * kernel.Exp(-x*x)
		t[k] = erfPlace{min(slope*sum, 1), slope}
	}
	return t
}()

// erf is the error function, to 1e-15: the Taylor series at the nearest place, whose derivatives are Hermite polynomials.
func erf(x float64) float64 {
	a := math.Abs(x)
	k := int(float64(min(a, 7)/erfStep) + 0.5)
	if k >= len(erfTable) {
		return math.Copysign(1, x)
	}
	place := float64(float64(k) * erfStep)
	d := a - place
	var sum, before float64
	h, power := 1.0, d // power is d to the n+1 by (n+1)!
	for n := 0.0; n < 10; n++ {
		sum += float64(h * power)
		before, h = h, float64(-2*place*h)-float64(2*n*before)
		power = float64(power*d) / (n + 2)
	}
	return math.Copysign(erfTable[k].value+float64(erfTable[k].slope*sum), x)
}

func gelu(x float64) float64 { return float64(0.5*x) * (1 + erf(x/math.Sqrt2)) }

// The tanh form of GELU is x (1 + tanh(geluFactor (x + geluCubic x³)))/2.
const geluCubic = 0.044715

var geluFactor = math.Sqrt(2 / math.Pi)

// tanhsOfGELU writes the values of tanh in that form to dst.
func tanhsOfGELU(dst, x []float64) {
	for i, v := range x {
		inner := v + float64(geluCubic*float64(v*float64(v*v)))
		dst[i] = float64(geluFactor * inner)
	}
	tanhs(dst)
}
