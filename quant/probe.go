package quant

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// probe measures the loss of storing the consumers of a site with scales folded in.
type probe struct {
	site    *Site
	q       Quantizer
	threads int
}

// probeRows is the number of rows that are encoded and multiplied at once. Sums over rows are split there, so results
// depend on it.
const probeRows = 64

// newProbe prepares a site for trials. They encode with q if it needs no data. A calibrated quantizer corrects errors
// of one weight by others, which is expensive and hides the effect of scales on the grid, so the weighted search
// replaces it.
func newProbe(s *Site, q Quantizer, threads int) (*probe, error) {
	n := s.Stats.Cols
	if len(s.Specs) != len(s.Consumers) || s.Weights != nil && len(s.Weights) != len(s.Consumers) ||
		len(s.Stats.Hessian) != n*n || s.Of == nil && s.Channels != n || s.Of != nil && len(s.Of) != n {
		return nil, fmt.Errorf("internal error: site %s is inconsistent", s.Name)
	}
	for _, c := range s.Consumers {
		if c.Cols != n {
			return nil, fmt.Errorf("internal error: site %s: %d columns of a consumer, %d of its statistics", s.Name, c.Cols, n)
		}
	}
	if kernel.NonFinite(s.Stats.Hessian) >= 0 {
		return nil, fmt.Errorf("%s: statistics are NaN or infinite: %w", s.Name, tensor.ErrCorrupt)
	}
	if q.Needs() != Nothing {
		search := NewSearch()
		search.Importance = ImportanceHessian
		q = search
	}
	return &probe{s, q, threads}, nil
}

// size returns the mean square of every channel's columns, at least a millionth of the overall mean: dead channels
// keep a finite scale. It is nil if all inputs are zero.
func (p *probe) size() []float64 {
	sum, count := make([]float64, p.site.Channels), make([]float64, p.site.Channels)
	var all float64
	for j, v := range p.site.Stats.Diagonal() {
		c := j
		if p.site.Of != nil {
			c = p.site.Of[j]
		}
		sum[c] += float64(v)
		count[c]++
		all += float64(v)
	}
	if !(all > 0) {
		return nil
	}
	floor := 1e-6 * (all / float64(p.site.Stats.Cols))
	for c := range sum {
		sum[c] = max(sum[c]/max(count[c], 1), floor)
	}
	return sum
}

// loss returns the sum over consumers of tr(dW H dWᵀ) with scales folded in. gradient, if not nil, [Channels],
// becomes its derivative by the logarithms of the scales.
//
// With v = w*s the scaled weight of a column, v̂ = mn + sc*u its stored value, E = v̂-v and P = 2 E D⁻¹HD⁻¹ = dL/dv̂, the
// weight of the model is ŵ = v̂/s. Rounding counts as the identity (straight through) and the grid follows the extremes
// of its block: sc as their distance, mn as the least of them. So
//
//	column's own part    P*(v - v̂) = -P*E inside the grid, -P*v̂ for what was clipped
//	through sc           sum over the block of P*E, or P*(v̂-mn) for what was clipped, times max/(max-min) at the
//	                     largest weight of the block and -min/(max-min) at the smallest
//	through mn           sum of P*mn over what was clipped, at the smallest
//
// and for symmetric specs, mn being 0, all of the second at the weight of largest magnitude. Scales of equal size in all
// channels change nothing, and the gradient has no part in that direction.
func (p *probe) loss(scale []float32, gradient []float64) (float64, error) {
	s := p.site.Scaled(scale, p.threads)
	n := s.Stats.Cols
	clear(gradient)
	var total float64
	for i, w := range s.Consumers {
		spec := s.Specs[i]
		if spec.Bits == 16 {
			continue
		}
		var in *Stats
		if p.q.Needs() != Nothing {
			in = s.Stats
		}
		e, err := p.q.Prepare(spec, n, in, p.threads)
		if err != nil {
			return 0, err
		}
		weight := 1.0
		if s.Weights != nil {
			weight = s.Weights[i]
		}
		parts := make([]part, (w.Rows+probeRows-1)/probeRows)
		kernel.Parallel(p.threads, len(parts), func(lo, hi int) {
			for k := lo; k < hi; k++ {
				from, to := k*probeRows, min((k+1)*probeRows, w.Rows)
				parts[k].measure(e, Matrix{to - from, n, w.Data[from*n : to*n]}, spec, s.Stats.Hessian, gradient != nil)
			}
		})
		for k := range parts {
			if parts[k].err != nil {
				return 0, fmt.Errorf("%s: consumer %d: %w", s.Name, i, parts[k].err)
			}
			total += float64(weight * parts[k].loss)
			for j, g := range parts[k].gradient {
				if s.Of != nil {
					j = s.Of[j]
				}
				gradient[j] += float64(weight * g)
			}
		}
	}
	return total, nil
}

// part is the contribution of one group of rows.
type part struct {
	loss     float64
	gradient []float64 // [cols], nil if not asked for
	err      error
}

func (t *part) measure(e Encoder, w Matrix, s Spec, hessian []float32, gradient bool) {
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		t.err = err
		return
	}
	b := NewBlocks(l, s)
	if t.err = e.Encode(b, w); t.err != nil {
		return
	}
	n := w.Cols
	diff, product := make([]float32, len(w.Data)), make([]float32, len(w.Data))
	b.errors(diff, w, l, s)
	kernel.MatMulT(product, diff, hessian, w.Rows, n, n, n, n, n)
	t.loss = dot(product, diff)
	if !gradient {
		return
	}
	t.gradient = make([]float64, n)
	for at := range b.Scale {
		lo := at * l.BlockCols
		hi := lo + l.BlockCols
		mn := 0.0
		if !s.Symmetric {
			mn = float64(b.Zero[at]) - math.Ldexp(float64(b.Scale[at]), s.Bits-1)
		}
		descend(t.gradient[lo%n:][:l.BlockCols], w.Data[lo:hi], diff[lo:hi], product[lo:hi], float64(b.Scale[at]), mn, s.Symmetric)
	}
}

// descend adds the derivative of the loss by the logarithms of a block's scales, see [probe.loss]. product is half of P.
func descend(gradient []float64, w, diff, product []float32, scale, mn float64, symmetric bool) {
	least, most := 0, 0
	var step, base float64
	for k, v := range w {
		if v < w[least] {
			least = k
		}
		if v > w[most] {
			most = k
		}
		p, d := 2*float64(product[k]), float64(diff[k])
		if math.Abs(d) > 0.5*math.Abs(scale) { // clipped
			stored := float64(v) + d
			gradient[k] -= float64(p * stored)
			step += float64(p * (stored - mn))
			base += float64(p * mn)
			continue
		}
		gradient[k] -= float64(p * d)
		step += float64(p * d)
	}
	lo, hi := float64(w[least]), float64(w[most])
	if symmetric {
		if -lo > hi {
			most = least
		}
		gradient[most] += step
		return
	}
	if hi > lo {
		gradient[most] += float64(step * (hi / (hi - lo)))
		gradient[least] += base - float64(step*(lo/(hi-lo)))
	}
}

// errors sets, for every weight, the stored value minus the intended one.
func (b Blocks) errors(dst []float32, w Matrix, l Layout, s Spec) {
	mid := int(1) << (s.Bits - 1)
	for at, sc := range b.Scale {
		zero := 0.0
		if b.Zero != nil {
			zero = float64(b.Zero[at])
		}
		for k := at * l.BlockCols; k < (at+1)*l.BlockCols; k++ {
			v := float64(float64(sc)*float64(int(b.Codes[k])-mid)) + zero
			dst[k] = float32(v - float64(w.Data[k]))
		}
	}
}

// dot is the sum of products, in order.
func dot(x, y []float32) float64 {
	var sum float64
	for i, v := range x {
		sum += float64(float64(v) * float64(y[i]))
	}
	return sum
}
