package net

import (
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// Functions of single elements have the same bits on every machine: products are converted before they are added, so that
// no compiler fuses them.

// tanh is the hyperbolic tangent, to 1e-15 of 1.
func tanh(x float64) float64 {
	e := kernel.Exp(-2 * math.Abs(x))
	return math.Copysign((1-e)/(1+e), x)
}

// activation is the function of an MLP.
type activation struct {
	arch.Activation
	// xielu are the factors of x², behind the exponential, and of x.
	xielu [3]float64
}

// activationBlock is what a function and the product behind it take at a time: the second finds it in the first cache.
const activationBlock = 2048

// apply writes the function of x to dst, which may be x. There are no more than activationBlock elements.
func (a *activation) apply(dst, x []float32) {
	switch a.Activation {
	case arch.GELU:
		kernel.EngineGELUErf(dst, x)
	case arch.GELUTanh:
		var logits, products [activationBlock]float32
		y, s := logits[:len(x)], products[:len(x)]
		for i, v := range x {
			y[i] = float32(logit(float64(v)))
		}
		kernel.SiLU(s, y)
		for i, v := range x {
			dst[i] = v * part(s[i], y[i])
		}
	case arch.ReLU:
		for i, v := range x {
			dst[i] = max(v, 0)
		}
	case arch.ReLU2:
		for i, v := range x {
			v = max(v, 0)
			dst[i] = v * v
		}
	case arch.XIELU:
		for i, v := range x {
			y, _ := a.exponential(float64(v))
			dst[i] = float32(y)
		}
	default:
		kernel.SiLU(dst, x)
	}
}

// slopes writes the function of x and its derivative.
func (a *activation) slopes(value, slope, x []float32) {
	a.apply(value, x)
	switch a.Activation {
	case arch.GELU: // Φ(x) + x φ(x)
		for i, v := range x {
			w := float64(v)
			density := kernel.Exp(-0.5*float64(w*w)) / math.Sqrt(2*math.Pi)
			slope[i] = float32(float64(part(value[i], v)) + float64(w*density))
		}
	case arch.GELUTanh: // σ(y) + x σ(y) (1 - σ(y)) y'
		for i, v := range x {
			s, w := float64(part(value[i], v)), limited(float64(v))
			rise := geluLinear + float64(3*geluCubic*float64(w*w))
			slope[i] = float32(s + float64(float64(w*float64(s*(1-s)))*rise))
		}
	case arch.ReLU:
		for i, v := range x {
			slope[i] = 0
			if v > 0 {
				slope[i] = 1
			}
		}
	case arch.ReLU2:
		for i, v := range x {
			slope[i] = 2 * max(v, 0)
		}
	case arch.XIELU:
		for i, v := range x {
			_, d := a.exponential(float64(v))
			slope[i] = float32(d)
		}
	default: // x σ(x)
		for i, v := range x {
			sigma := part(value[i], v)
			slope[i] = sigma + float32(value[i]*(1-sigma))
		}
	}
}

// part is y/x, the logistic function of a gate where y = x σ; a half near 0.
func part(y, x float32) float32 {
	if x > 0x1p-100 || x < -0x1p-100 {
		return y / x
	}
	return 0.5
}

// The tanh form of GELU, x (1 + tanh(z))/2 with z = sqrt(2/π) (x + 0.044715 x³), is x σ(2z).
var (
	geluLinear = 2 * math.Sqrt(2/math.Pi)
	geluCubic  = float64(geluLinear * 0.044715)
)

// logit is 2z. Beyond some limit σ is 0 or 1.
func logit(x float64) float64 {
	x = limited(x)
	return float64(x * (geluLinear + float64(geluCubic*float64(x*x))))
}

func limited(x float64) float64 { return max(-100, min(x, 100)) }

// exponential is xIELU and its derivative.
func (a *activation) exponential(x float64) (y, slope float64) {
	if x > 0 {
		return float64(a.xielu[0]*float64(x*x)) + float64(a.xielu[2]*x), float64(2*float64(a.xielu[0]*x)) + a.xielu[2]
	}
	e := kernel.Exp(x) - 1
	return float64(a.xielu[1]*(e-x)) + float64(a.xielu[2]*x), float64(a.xielu[1]*e) + a.xielu[2]
}

// sigmoids replaces x by the logistic function of it.
func sigmoids(threads int, x []float32) {
	kernel.Parallel(threads, len(x), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x[i] = float32(1 / (1 + kernel.Exp(-float64(x[i]))))
		}
	})
}
