package quant

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// OmniQuant learns scales and clipping by gradient descent, where AWQ and the search try a list of candidates,
// after "OmniQuant: Omnidirectionally Calibrated Quantization for Large Language Models" (ICLR 2024).
//
// Its learnable equivalent transformation (LET) is a [Folder]: scales of a site begin at the best of [AWQ] and descend on
// their logarithms, with rounding as the identity. Its learnable weight clipping (LWC) is a [Quantizer]: scale and minimum
// of every block begin at the weighted search and descend with codes chosen again in every step. With ŵ = mn + sc*u, u =
// clamp(round((w-mn)/sc)), and L = tr(dW (H + λI) dWᵀ), λ being damping times the mean of H's diagonal,
//
//	dL/dŵ = 2 dW (H + λI)    dŵ/dsc = u    dŵ/dmn = 1
//
// Steps are Adam's (0.9, 0.999), the rate falls linearly to 0. Scale and zero term are rounded to their stored type in
// every step, and the best step of every row is kept, the search's own result among them.
//
// The paper learns both together through a whole decoder block, in its own format; here the loss is that of one layer,
// the format is the stored one, minimum and scale take the place of two clipping factors, and there are no shifts: norms
// without bias cannot absorb them. Its gradient of clipping treats rounding as the identity; here the gradient of LWC is
// the exact derivative between two changes of a code. On asymmetric blocks with an outlier the former leaves 6 % more
// error at 4 bits and 8 % at 2, elsewhere the two are within 3 %. A row costs steps * 2 cols² operations.
type OmniQuant struct {
	Steps   int     `json:"steps" jsonschema_description:"Steps of gradient descent, from 1 to 1000."`
	Rate    float64 `json:"rate" jsonschema_description:"First step of the logarithm of a scale, above 0 and at most 0.5."`
	Damping float64 `json:"damping" jsonschema_description:"Part of the mean of the Hessian's diagonal that is added to it, from 0 to 10."`
	LET     bool    `json:"let" jsonschema_description:"Learn scales of channels as well."`
}

// NewOmniQuant returns the defaults.
func NewOmniQuant() *OmniQuant { return &OmniQuant{Steps: 50, Rate: 0.02, Damping: 0.1, LET: true} }

// Name implements Method.
func (*OmniQuant) Name() string { return "omniquant" }

// Closeness implements Method.
func (o *OmniQuant) Closeness() Closeness {
	if o.LET {
		return Closeness{Weights: Fitted, Floats: Rewritten}
	}
	return Closeness{Weights: Fitted}
}

// Needs implements Method.
func (*OmniQuant) Needs() Needs { return Text }

// Validate implements Method.
func (o *OmniQuant) Validate() error {
	if o.Steps < 1 || o.Steps > 1000 {
		return fmt.Errorf("steps must be from 1 to 1000, not %d", o.Steps)
	}
	if !(o.Rate > 0 && o.Rate <= 0.5) {
		return fmt.Errorf("rate must be above 0 and at most 0.5, not %g", o.Rate)
	}
	if !(o.Damping >= 0 && o.Damping <= 10) {
		return fmt.Errorf("damping must be from 0 to 10, not %g", o.Damping)
	}
	return nil
}

// Fold implements Folder.
func (o *OmniQuant) Fold(s *Site, q Quantizer, threads int) (Scaling, error) {
	if !o.LET {
		return Scaling{}, nil
	}
	p, err := newProbe(s, q, threads)
	if err != nil {
		return Scaling{}, err
	}
	best, before, after, err := NewAWQ().search(p)
	if err != nil || before == 0 {
		return Scaling{}, err
	}
	logs, gradient := append([]float64(nil), best...), make([]float64, len(best))
	a := newAdam(len(logs))
	for t := range o.Steps + 1 {
		l, err := p.loss(scales(logs), gradient)
		if err != nil {
			return Scaling{}, err
		}
		if l < after {
			after = l
			copy(best, logs)
		}
		if t == o.Steps {
			break
		}
		a.begin()
		for c := range logs {
			logs[c] -= a.step(c, gradient[c], o.rate(t))
		}
		center(logs)
	}
	return accept(best, before, after), nil
}

// rate returns the learning rate of step t.
func (o *OmniQuant) rate(t int) float64 {
	return float64(o.Rate*float64(o.Steps-t)) / float64(o.Steps)
}

// Prepare implements Quantizer.
func (o *OmniQuant) Prepare(spec Spec, cols int, in *Stats, threads int) (Encoder, error) {
	if spec.Bits == 16 {
		return nil, fmt.Errorf("internal error: 16-bit weights are not encoded by a method")
	}
	if in == nil || in.Cols != cols || len(in.Hessian) != cols*cols {
		return nil, fmt.Errorf("internal error: omniquant needs statistics of %d columns", cols)
	}
	if kernel.NonFinite(in.Hessian) >= 0 {
		return nil, fmt.Errorf("statistics are NaN or infinite: %w", tensor.ErrCorrupt)
	}
	search := NewSearch()
	search.Importance = ImportanceHessian
	start, err := search.Prepare(spec, cols, in, threads)
	if err != nil {
		return nil, err
	}
	damped := append([]float32(nil), in.Hessian...)
	var trace float64
	for _, v := range in.Diagonal() {
		trace += float64(v)
	}
	lambda := float32(float64(o.Damping*trace) / float64(cols))
	for i := range cols {
		damped[i*cols+i] += lambda
	}
	c := &clipping{o: o, spec: spec, start: start}
	c.hessian.Pack(damped, cols, cols, cols)
	return c, nil
}

// clipping is OmniQuant's encoder.
type clipping struct {
	o       *OmniQuant
	spec    Spec
	start   Encoder
	hessian kernel.Packed
}

// clippingRows is the number of rows that one product multiplies by the Hessian; no result depends on it.
const clippingRows = 64

// reach bounds the distance of the logarithm of a scale from the search's.
const reach = 1.5

// Encode implements Encoder.
func (c *clipping) Encode(dst Blocks, w Matrix) error {
	if err := c.start.Encode(dst, w); err != nil {
		return err
	}
	for lo := 0; lo < w.Rows; lo += clippingRows {
		hi := min(lo+clippingRows, w.Rows)
		c.rows(dst.Slice(lo, hi, w.Rows), w.Slice(lo, hi))
	}
	return nil
}

// rows improves rows that the search has encoded.
func (c *clipping) rows(best Blocks, w Matrix) {
	s, n := c.spec, w.Cols
	l, _ := s.Layout(w.Rows, n)
	first := Blocks{Scale: append([]float32(nil), best.Scale...), Zero: append([]float32(nil), best.Zero...)}
	now := NewBlocks(l, s)
	copy(now.Codes, best.Codes)
	copy(now.Scale, best.Scale)
	copy(now.Zero, best.Zero)
	diff, product := make([]float32, len(w.Data)), make([]float32, len(w.Data))
	least := make([]float64, w.Rows)
	for r := range least {
		least[r] = math.Inf(1)
	}
	// Two parameters for every block: the logarithm of its scale, and its minimum in units of the first scale.
	move := make([]float64, 2*len(now.Scale))
	a := newAdam(len(move))
	for t := range c.o.Steps + 1 {
		now.errors(diff, w, l, s)
		c.hessian.MulT(product, diff, w.Rows, n, n, 0, n)
		for r := range w.Rows {
			if loss := dot(product[r*n:(r+1)*n], diff[r*n:(r+1)*n]); loss < least[r] {
				least[r] = loss
				copy(best.Codes[r*n:(r+1)*n], now.Codes[r*n:])
				copy(best.Scale[r*l.Blocks:(r+1)*l.Blocks], now.Scale[r*l.Blocks:])
				if best.Zero != nil {
					copy(best.Zero[r*l.Blocks:(r+1)*l.Blocks], now.Zero[r*l.Blocks:])
				}
			}
		}
		if t == c.o.Steps {
			return
		}
		a.begin()
		for at := range now.Scale {
			lo, hi := at*l.BlockCols, (at+1)*l.BlockCols
			byScale, byLeast := now.slope(at, w.Data[lo:hi], diff[lo:hi], product[lo:hi], s)
			unit := math.Abs(float64(first.Scale[at]))
			move[2*at] -= a.step(2*at, byScale, c.o.rate(t))
			move[2*at] = min(max(move[2*at], -reach), reach)
			move[2*at+1] -= a.step(2*at+1, float64(byLeast*unit), c.o.rate(t))
			now.settle(at, first, move[2*at], move[2*at+1], s)
			now.nearest(at, w.Data[lo:hi], s)
		}
	}
}

// slope returns the derivatives of the loss by the logarithm of a block's scale and by its minimum; product is half of
// dL/dŵ.
func (b Blocks) slope(at int, w, diff, product []float32, s Spec) (byScale, byLeast float64) {
	mn := 0.0
	if !s.Symmetric {
		mn = float64(b.Zero[at]) - math.Ldexp(float64(b.Scale[at]), s.Bits-1)
	}
	for k, v := range diff {
		p := 2 * float64(product[k])
		byScale += float64(p * (float64(w[k]) + float64(v) - mn))
		byLeast += p
	}
	return byScale, byLeast
}

// settle sets the terms of a block, rounded to their type: its first scale times e^scale, and its first minimum moved by
// least first scales. Terms that the type cannot hold stay as they are.
func (b Blocks) settle(at int, first Blocks, scale, least float64, s Spec) {
	sc := float32(s.round(float64(float64(first.Scale[at]) * kernel.Exp(scale))))
	if sc == 0 || !isFinite(sc) {
		return
	}
	if s.Symmetric {
		b.Scale[at] = sc
		return
	}
	mid := float64(int(1) << (s.Bits - 1))
	unit := float64(first.Scale[at])
	mn := float64(first.Zero[at]) - float64(unit*mid) + float64(least*math.Abs(unit))
	zero := float32(s.round(mn + float64(float64(sc)*mid)))
	if isFinite(zero) {
		b.Scale[at], b.Zero[at] = sc, zero
	}
}

// nearest chooses the codes of a block. It is not kernel.GridCodes, whose quotients are bounded: a step may take a scale
// anywhere.
func (b Blocks) nearest(at int, w []float32, s Spec) {
	mid, zero := float64(int(1)<<(s.Bits-1)), 0.0
	if !s.Symmetric {
		zero = float64(b.Zero[at])
	}
	codes, inverse := b.Codes[at*len(w):(at+1)*len(w)], 1/float64(b.Scale[at])
	for k, v := range w {
		q := math.RoundToEven(float64((float64(v) - zero) * inverse))
		codes[k] = uint8(min(max(q, -mid), mid-1) + mid)
	}
}
