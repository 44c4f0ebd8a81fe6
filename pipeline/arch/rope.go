package arch

import (
	"math"
	"math/big"
	"slices"
)

// defaultTheta is the base of the rotary frequencies when the file has none, the same in all families.
const defaultTheta = 10000

// ropeParams are the parameters of the rotary table, without the dimension. Zero is "not given" or
// "not of this type".
type ropeParams struct {
	kind   string
	theta  float64
	factor float64
	// llama3: bounds of the wavelength, as fractions of the original context length.
	low, high, original float64
}

// readRope reads both spellings: rope_parameters of transformers 5, rope_theta and rope_scaling of 4.
// A file that has both must say the same twice.
func readRope(c *Config) ropeParams {
	refusePartial(c)
	theta, _ := c.OptFloat("rope_theta", 1, 1e15)
	p := ropeParams{kind: "default"}
	now, before := c.Object("rope_parameters"), c.Object("rope_scaling")
	switch {
	case now != nil && before != nil:
		p = readRopeObject(now)
		old := readRopeObject(before)
		if p.theta == 0 || old.theta == 0 {
			p.theta = max(p.theta, old.theta)
			old.theta = p.theta
		}
		if now.Good("rope_type", "type") && before.Good("rope_type", "type") && p != old {
			c.Wrong("rope_scaling", "contradicts rope_parameters")
		}
	case now != nil:
		p = readRopeObject(now)
	case before != nil:
		p = readRopeObject(before)
	}
	switch {
	case p.theta == 0 && theta == 0:
		p.theta = defaultTheta
	case p.theta == 0:
		p.theta = theta
	case theta != 0 && theta != p.theta:
		c.Wrong("rope_theta", "%g contradicts the rope_theta %g of the rope parameters", theta, p.theta)
	}
	return p
}

// readRopeObject reads rope_parameters or rope_scaling. Keys that do not belong to the type stay
// unread, so that Finish refuses them.
func readRopeObject(o *Config) ropeParams {
	p := ropeParams{kind: "default"}
	p.theta, _ = o.OptFloat("rope_theta", 1, 1e15)
	refusePartial(o)
	key := "rope_type"
	kind, ok := o.OptString(key)
	if old, okOld := o.OptString("type"); okOld {
		if ok && old != kind {
			o.Wrong("type", "%s contradicts rope_type %s", show(old), show(kind))
		}
		if !ok {
			key, kind, ok = "type", old, true
		}
	}
	if !ok {
		return p
	}
	const maxFactor = 1e6
	switch kind {
	case "default":
	case "linear":
		p.kind = kind
		p.factor = o.Float("factor", 1, maxFactor)
	case "llama3":
		p.kind = kind
		p.factor = o.Float("factor", 1, maxFactor)
		p.low = o.Float("low_freq_factor", 1e-6, maxFactor)
		p.high = o.Float("high_freq_factor", 1e-6, maxFactor)
		p.original = float64(o.Int("original_max_position_embeddings", maxPositions))
		if o.Good("low_freq_factor", "high_freq_factor") && p.high <= p.low {
			o.Wrong("high_freq_factor", "%g is not larger than low_freq_factor %g", p.high, p.low)
		}
	default:
		o.Refuse(key, "%s is not supported (known: default, linear, llama3)", show(kind))
		// The other keys are parameters of that type: one refusal is enough.
		for _, k := range o.fields.keys {
			o.take(k)
		}
	}
	return p
}

func refusePartial(c *Config) {
	if f, ok := c.OptFloat("partial_rotary_factor", 0, 1); ok && f != 1 {
		c.Refuse("partial_rotary_factor", "%g is not supported, only 1", f)
	}
}

// table computes the frequencies for heads of dim elements, dim even:
//
//	default  f_j = theta^(-2j/dim)
//	linear   f_j / factor
//	llama3   wavelength 2*pi/f_j above original/low: f_j / factor; below original/high: f_j;
//	         between: a blend, linear in original/wavelength
func (p ropeParams) table(dim int) Rope {
	r := Rope{Type: p.kind, Dim: dim, InvFreq: inverseFrequencies(p.theta, dim), Scale: 1}
	for j, f := range r.InvFreq {
		switch p.kind {
		case "linear":
			r.InvFreq[j] = f / p.factor
		case "llama3":
			wavelength := 2 * math.Pi / f
			switch {
			case wavelength > p.original/p.low:
				r.InvFreq[j] = f / p.factor
			case wavelength >= p.original/p.high:
				t := (p.original/wavelength - p.low) / (p.high - p.low)
				// The conversions forbid fused multiply-add, which would differ between machines.
				r.InvFreq[j] = float64((1-t)*f)/p.factor + float64(t*f)
			}
		}
	}
	return r
}

// equal reports whether two tables are the same.
func (r *Rope) equal(o *Rope) bool {
	return r.Dim == o.Dim && r.Scale == o.Scale && r.Original == o.Original && slices.Equal(r.InvFreq, o.InvFreq) && slices.Equal(r.Long, o.Long)
}

// inverseFrequencies returns theta^(-2j/dim) for j below dim/2, correctly rounded. math.Pow is not:
// its last bit depends on the processor, and packages must not.
func inverseFrequencies(theta float64, dim int) []float64 {
	const precision = 256
	newFloat := func(x float64) *big.Float { return big.NewFloat(x).SetPrec(precision) }
	n := dim / 2
	// Newton's iteration for root^n = theta. The start is good to 50 bits, every round doubles that.
	root, base := newFloat(math.Pow(theta, 1/float64(n))), newFloat(theta)
	for range 4 {
		next := newFloat(0).Quo(base, power(root, n-1))
		next.Add(next, newFloat(0).Mul(root, newFloat(float64(n-1))))
		root = next.Quo(next, newFloat(float64(n)))
	}
	out := make([]float64, n)
	step, f := newFloat(0).Quo(newFloat(1), root), newFloat(1)
	for j := range out {
		out[j], _ = f.Float64()
		f.Mul(f, step)
	}
	return out
}

// power returns x^n.
func power(x *big.Float, n int) *big.Float {
	out := big.NewFloat(1).SetPrec(x.Prec())
	square := new(big.Float).Copy(x)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out.Mul(out, square)
		}
		square.Mul(square, square)
	}
	return out
}
