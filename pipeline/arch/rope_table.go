package arch

import (
	"math"
	"math/big"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// table computes the frequencies for heads of which dim elements turn, dim even, as transformers does
// (modeling_rope_utils.py) but in float64 and with the same bits on every machine:
//
//	default   f_j = theta^(-2j/dim)
//	linear    f_j / factor
//	llama3    wavelength 2*pi/f_j above original/low: f_j / factor; below original/high: f_j;
//	          between: a blend, linear in original/wavelength; with high equal to low, as Llama 4 Scout has it, nothing is
//	          between
//	yarn      f_j/factor · r_j + f_j · (1 - r_j), r_j a ramp from 0 to 1 between the pairs that turn fast and slow times
//	          within the original length (arXiv 2309.00071)
//	longrope  f_j / short_j, and f_j / long_j for texts beyond the original length (arXiv 2402.13753)
//	dynamic   theta · alpha^(dim/(dim-2)) in place of theta
//	ntk       theta · factor in place of theta, and f_j / factor^(2/dim)
//	proportional  f_j / factor for the first pairs, 0 for the others
func (p ropeParams) table(dim int) Rope {
	r := Rope{Type: p.kind, Dim: dim, Scale: p.multiplier()}
	switch {
	case p.alpha != 0:
		r.InvFreq = powers(stretched(p.theta, p.alpha, dim), dim)
	case p.kind == "ntk":
		r.InvFreq = powers(bigFloat(0).Mul(bigFloat(p.theta), bigFloat(p.factor)), dim)
	default:
		r.InvFreq = inverseFrequencies(p.theta, dim)
	}
	switch p.kind {
	case "linear":
		for j, f := range r.InvFreq {
			r.InvFreq[j] = f / p.factor
		}
	case "ntk":
		root, _ := nthRoot(bigFloat(p.factor), dim/2).Float64()
		for j, f := range r.InvFreq {
			r.InvFreq[j] = f / root
		}
	case "proportional":
		turning := int(math.Floor(p.turning * float64(dim) / 2))
		for j, f := range r.InvFreq {
			r.InvFreq[j] = f / p.factor
		}
		clear(r.InvFreq[turning:])
	case "llama3":
		p.llama3(r.InvFreq)
	case "yarn":
		p.yarn(r.InvFreq, dim)
	case "longrope":
		r.Long = slices.Clone(r.InvFreq)
		for j, f := range r.InvFreq {
			r.InvFreq[j], r.Long[j] = f/p.short[j], f/p.long[j]
		}
		r.Original = int(p.original)
	}
	return r
}

func (p ropeParams) llama3(freq []float64) {
	for j, f := range freq {
		wavelength := 2 * math.Pi / f
		switch {
		case wavelength > p.original/p.low:
			freq[j] = f / p.factor
		case wavelength >= p.original/p.high && p.low < p.high:
			t := (p.original/wavelength - p.low) / (p.high - p.low)
			// The conversions forbid fused multiply-add, which would differ between machines.
			freq[j] = float64((1-t)*f)/p.factor + float64(t*f)
		}
	}
}

func (p ropeParams) yarn(freq []float64, dim int) {
	// pair returns the pair with that many rotations within the original length.
	pair := func(turns float64) float64 {
		return float64(float64(dim)*kernel.Log(p.original/(turns*2*math.Pi))) / (2 * kernel.Log(p.theta))
	}
	lo, hi := pair(p.fast), pair(p.slow)
	if !p.exact {
		lo, hi = math.Floor(lo), math.Ceil(hi)
	}
	lo, hi = max(lo, 0), min(hi, float64(dim-1))
	if lo == hi {
		hi += 0.001
	}
	for j, f := range freq {
		ramp := min(max((float64(j)-lo)/(hi-lo), 0), 1)
		freq[j] = float64(f/p.factor*ramp) + float64(f*(1-ramp))
	}
}

// multiplier returns that of cosine and sine.
func (p ropeParams) multiplier() float64 {
	switch {
	case p.attention != 0:
		return p.attention
	case p.kind == "yarn" && p.mscale != 0 && p.mscaleAll != 0:
		return yarnScale(p.factor, p.mscale) / yarnScale(p.factor, p.mscaleAll)
	case p.kind == "yarn":
		return yarnScale(p.factor, 1)
	case p.kind == "longrope" && p.factor > 1:
		return math.Sqrt(1 + kernel.Log(p.factor)/kernel.Log(p.original))
	}
	return 1
}

// yarnScale is the factor of attention scores that yarn uses for contexts that are factor times as long.
func yarnScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(float64(0.1*mscale)*kernel.Log(factor)) + 1
}

// equal reports whether two tables are the same.
func (r *Rope) equal(o *Rope) bool {
	return r.Dim == o.Dim && r.Scale == o.Scale && r.Original == o.Original && slices.Equal(r.InvFreq, o.InvFreq) && slices.Equal(r.Long, o.Long)
}

// ropePrecision is the precision of the frequencies, in bits.
const ropePrecision = 256

func bigFloat(x float64) *big.Float { return big.NewFloat(x).SetPrec(ropePrecision) }

// stretched returns theta · alpha^(dim/(dim-2)), for dim of at least 4.
func stretched(theta, alpha float64, dim int) *big.Float {
	// The exponent is 1 + 1/n.
	n := (dim - 2) / 2
	out := nthRoot(bigFloat(alpha), n)
	return out.Mul(out, bigFloat(alpha)).Mul(out, bigFloat(theta))
}

// inverseFrequencies returns theta^(-2j/dim) for j below dim/2, correctly rounded. math.Pow is not: its last bit
// depends on the processor, and packages must not.
func inverseFrequencies(theta float64, dim int) []float64 { return powers(bigFloat(theta), dim) }

func powers(theta *big.Float, dim int) []float64 {
	out := make([]float64, dim/2)
	step, f := bigFloat(0).Quo(bigFloat(1), nthRoot(theta, dim/2)), bigFloat(1)
	for j := range out {
		out[j], _ = f.Float64()
		f.Mul(f, step)
	}
	return out
}

// nthRoot returns the n-th root of x >= 1.
func nthRoot(x *big.Float, n int) *big.Float {
	// Newton's iteration. The start is accurate to 50 bits, and every round doubles that.
	near, _ := x.Float64()
	root := bigFloat(math.Pow(near, 1/float64(n)))
	for range 4 {
		next := bigFloat(0).Quo(x, power(root, n-1))
		next.Add(next, bigFloat(0).Mul(root, bigFloat(float64(n-1))))
		root = next.Quo(next, bigFloat(float64(n)))
	}
	return root
}

// power returns x^n.
func power(x *big.Float, n int) *big.Float {
	out := bigFloat(1)
	square := new(big.Float).Copy(x)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out.Mul(out, square)
		}
		square.Mul(square, square)
	}
	return out
}
