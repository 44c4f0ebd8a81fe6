package forward

import (
	"math"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// activation is the function of an MLP.
type activation struct {
	arch.Activation
	alpha, limit float64
	// xielu holds the factors of x², of the exponential, and of x.
	xielu [3]float64
}

// quickFactor makes sigmoid in QuickGELU resemble the normal distribution.
const quickFactor = 1.702

// activationBlock is how many elements a function and the following product process at a time: the product finds them in the L1
// cache.
const activationBlock = 2048

// each calls f for pieces of n elements, in parallel.
func (s *space) pieces(n int, f func(lo, hi int)) {
	kernel.Parallel(s.threads, (n+activationBlock-1)/activationBlock, func(lo, hi int) {
		for ; lo < hi; lo++ {
			f(lo*activationBlock, min((lo+1)*activationBlock, n))
		}
	})
}

// apply writes the function of x to dst, which may be x.
func (a *activation) apply(dst, x []float32) {
	if a.Activation == arch.SiLU {
		kernel.SiLU(dst, x)
		return
	}
	inBlocks(dst, x, a.values)
}

// values replaces the elements of a block by their function, except for SiLU.
func (a *activation) values(x []float64) {
	var block [functionBlock]float64
	t := block[:len(x)]
	switch a.Activation {
	case arch.GELUTanh:
		tanhsOfGELU(t, x)
		for i, v := range x {
			x[i] = float64(0.5*v) * (1 + t[i])
		}
	case arch.QuickGELU, arch.ClampedSwiGLU:
		a.sigmas(t, x)
		for i, v := range x {
			x[i] = a.below(v) * t[i]
		}
	default:
		for i, v := range x {
			x[i] = a.value(v)
		}
	}
}

// sigmas writes the values of sigmoid in QuickGELU and ClampedSwiGLU to dst.
func (a *activation) sigmas(dst, x []float64) {
	for i, v := range x {
		dst[i] = float64(a.steepness() * a.below(v))
	}
	sigmoids(dst)
}

// steepness is the factor of the argument of these sigmoids.
func (a *activation) steepness() float64 {
	if a.Activation == arch.QuickGELU {
		return quickFactor
	}
	return a.alpha
}

// below is x within the limit of ClampedSwiGLU.
func (a *activation) below(x float64) float64 {
	if a.Activation == arch.QuickGELU {
		return x
	}
	return min(x, float64(float32(a.limit)))
}

// value is the function of one element, for those without sigmoid or tanh.
func (a *activation) value(x float64) float64 {
	switch a.Activation {
	case arch.GELU:
		return gelu(x)
	case arch.ReLU:
		return max(x, 0)
	case arch.ReLU2:
		x = max(x, 0)
		return x * x
	}
	if x > 0 { // XIELU
		return float64(a.xielu[0]*float64(x*x)) + float64(a.xielu[2]*x)
	}
	return float64(a.xielu[1]*expRest(x)) + float64(a.xielu[2]*x)
}

// slopes writes the function of x and its derivative.
func (a *activation) slopes(value, slope, x []float32) {
	if a.Activation == arch.SiLU {
		kernel.SiLUSlopes(value, slope, x)
		return
	}
	a.apply(value, x)
	inBlocks(slope, x, a.slopesOf)
}

// slopesOf replaces the elements of a block by the derivative there, except for SiLU.
func (a *activation) slopesOf(x []float64) {
	var block [functionBlock]float64
	t := block[:len(x)]
	switch a.Activation {
	case arch.GELUTanh: // (1 + t)/2 + x (1 - t²)/2 y', t = tanh(y)
		tanhsOfGELU(t, x)
		for i, v := range x {
			rise := float64(geluFactor * (1 + float64(3*geluCubic*float64(v*v))))
			x[i] = float64(0.5*(1+t[i])) + float64(float64(0.5*v)*float64((1-float64(t[i]*t[i]))*rise))
		}
	case arch.QuickGELU, arch.ClampedSwiGLU:
		a.sigmas(t, x)
		for i, v := range x {
			if v > a.limit && a.Activation == arch.ClampedSwiGLU {
				x[i] = 0
				continue
			}
			x[i] = t[i] + float64(float64(a.steepness()*v)*float64(t[i]*(1-t[i])))
		}
	default:
		for i, v := range x {
			x[i] = a.slope(v)
		}
	}
}

// slope is the derivative at one element, for functions without sigmoid or tanh.
func (a *activation) slope(x float64) float64 {
	switch a.Activation {
	case arch.GELU: // Φ(x) + x φ(x)
		density := kernel.Exp(-0.5*float64(x*x)) / math.Sqrt(2*math.Pi)
		return float64(0.5*(1+erf(x/math.Sqrt2))) + float64(x*density)
	case arch.ReLU:
		if x > 0 {
			return 1
		}
		return 0
	case arch.ReLU2:
		return 2 * max(x, 0)
	}
	if x > 0 { // XIELU
		return float64(2*float64(a.xielu[0]*x)) + a.xielu[2]
	}
	return float64(a.xielu[1]*(kernel.Exp(x)-1)) + a.xielu[2]
}

// clamp turns the other factor of ClampedSwiGLU into the value that the function is multiplied by.
func (a *activation) clamp(up []float32) {
	if a.Activation != arch.ClampedSwiGLU {
		return
	}
	limit := float32(a.limit)
	for i, u := range up {
		up[i] = max(min(u, limit), -limit) + 1
	}
}

// passes reports whether the gradient of a factor after clamp is that of its argument; beyond the bounds it is 0.
func (a *activation) passes(up float32) bool {
	limit := float32(a.limit)
	return a.Activation != arch.ClampedSwiGLU || up < limit+1 && up > 1-limit
}

// back replaces gate and up by their gradients, for d, the gradient of the product of up and the function of gate, in runs of at
// most activationBlock elements. up is as clamp has left it, or nil for 1.
func (a *activation) back(d, gate, up []float32) {
	if a.Activation == arch.SiLU && up != nil {
		kernel.SiLUBack(d, gate, up)
		return
	}
	var values, slopes [activationBlock]float32
	y, t := values[:len(gate)], slopes[:len(gate)]
	a.slopes(y, t, gate)
	if up == nil {
		kernel.Mul(gate, d, t)
		return
	}
	for i, f := range d {
		passes := a.passes(up[i])
		gate[i] = float32(f*up[i]) * t[i]
		up[i] = 0
		if passes {
			up[i] = f * y[i]
		}
	}
}
