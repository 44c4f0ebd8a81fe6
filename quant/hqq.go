package quant

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// HQQ is half-quadratic quantization (Badri and Shaji 2023, mobiusml.github.io/hqq_blog): it starts from the grid of
// RTN and moves the zero term so that the mean error without its outliers is zero. In every round, with w' the stored
// weight and e = w - w',
//
//	e' = sign(e) * max(|e| - |e|^(p-1)/beta, 0)     the outliers of the error, p < 1
//	zero += mean(e - e')
//	scale += sum(q*(w - w'))/sum(q*q)               if Scale, with the new zero
//	beta *= growth
//
// A block stops when a round does not lower its squared error; the best round is kept, and RTN's grid if none is
// better. e is in units of weights, as in the paper's code; with its beta of 10 errors below .17 have no outliers, so
// zero moves by the mean error. The paper does not move the scale, and neither does MNN's exporter, which also keeps
// beta constant, and stops all blocks at the same time: growth 1 without scale comes closest.
//
// The fit of the scale takes 3, 8 and 24 % off the paper's error at 4, 3 and 2 bits (root mean square, blocks of 64 of a
// trained model). Search finds better grids for each of its objectives; HQQ exists for comparison. Cost: 40 ns a weight
// and core at 4 bits and blocks of 64.
type HQQ struct {
	// P is the power of the error that is minimised, above 0 and at most 1.
	P float64 `json:"p" jsonschema_description:"Power of the error that is made small; above 0 and at most 1"`
	// Beta is the first weight of the outliers of the error.
	Beta float64 `json:"beta" jsonschema_description:"First weight of the outliers of the error; above 0"`
	// Growth is the factor of Beta after every round.
	Growth float64 `json:"growth" jsonschema_description:"Factor of beta after every round; from 1 to 10"`
	// Iterations bounds the number of rounds.
	Iterations int `json:"iterations" jsonschema:"minimum=1,maximum=200" jsonschema_description:"Largest number of rounds"`
	// Scale fits the scale too. A symmetric spec has no other term to fit.
	Scale bool `json:"scale" jsonschema_description:"Fit the scale after the zero term; the paper fits the zero term alone"`
}

// NewHQQ returns the defaults: the paper's, and the fit of the scale.
func NewHQQ() *HQQ { return &HQQ{P: 0.7, Beta: 10, Growth: 1.01, Iterations: 20, Scale: true} }

// Name implements Method.
func (*HQQ) Name() string { return "hqq" }

// Closeness implements Method.
func (*HQQ) Closeness() Closeness { return Closeness{Weights: Near, Factor: searchedFactor} }

// Needs implements Method.
func (*HQQ) Needs() Needs { return Nothing }

// Validate implements Method.
func (h *HQQ) Validate() error {
	switch {
	case !(h.P > 0 && h.P <= 1):
		return fmt.Errorf("p must be above 0 and at most 1, not %v", h.P)
	case !(h.Beta > 0 && h.Beta <= 1e12):
		return fmt.Errorf("beta must be above 0 and at most 1e12, not %v", h.Beta)
	case !(h.Growth >= 1 && h.Growth <= 10):
		return fmt.Errorf("growth must be from 1 to 10, not %v", h.Growth)
	case h.Iterations < 1 || h.Iterations > 200:
		return fmt.Errorf("iterations must be from 1 to 200, not %d", h.Iterations)
	}
	return nil
}

// Prepare implements Quantizer.
func (h *HQQ) Prepare(s Spec, _ int, _ *Stats, _ int) (Encoder, error) {
	if s.Bits == 16 {
		return nil, fmt.Errorf("internal error: 16-bit weights are not encoded by a method")
	}
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if s.Symmetric && !h.Scale {
		return nil, fmt.Errorf("%v has no zero term, and scale is false: nothing to fit: %w", s, tensor.ErrUnsupported)
	}
	e := &halfQuadratic{spec: s, power: h.P - 1, scale: h.Scale}
	for beta := h.Beta; len(e.beta) < h.Iterations; beta *= h.Growth {
		e.beta = append(e.beta, beta)
		// |e| > |e|^(p-1)/beta
		e.outlier = append(e.outlier, kernel.Exp(-kernel.Log(beta)/(2-h.P)))
	}
	return e, nil
}

// halfQuadratic is the encoder of HQQ.
type halfQuadratic struct {
	spec          Spec
	power         float64
	scale         bool
	beta, outlier []float64 // of each round: beta, and the error at which outliers begin
}

// Encode implements Encoder.
func (e *halfQuadratic) Encode(dst Blocks, w Matrix) error {
	if err := (nearest{e.spec}).Encode(dst, w); err != nil {
		return err
	}
	l, err := e.spec.Layout(w.Rows, w.Cols)
	if err != nil {
		return err
	}
	codes := make([]uint8, l.BlockCols)
	for b := range dst.Scale {
		at := b * l.BlockCols
		e.block(dst, b, codes, w.Data[at:at+l.BlockCols], dst.Codes[at:at+l.BlockCols])
	}
	return nil
}

// block improves block b of dst, which holds RTN's grid and codes. try has room for codes.
func (e *halfQuadratic) block(dst Blocks, b int, try []uint8, w []float32, best []uint8) {
	copy(try, best)
	scale, zero := float64(dst.Scale[b]), 0.0
	if !e.spec.Symmetric {
		zero = float64(dst.Zero[b])
	}
	least := math.Inf(1)
	for k := 0; ; k++ {
		var sum float64
		mid := float64(int(1) << (e.spec.Bits - 1))
		for i, v := range w {
			d := float64(v) - float64(scale*(float64(try[i])-mid)) - zero
			sum += float64(d * d)
		}
		if sum >= least {
			return
		}
		if least = sum; k > 0 {
			copy(best, try)
			dst.Scale[b] = float32(scale)
			if !e.spec.Symmetric {
				dst.Zero[b] = float32(zero)
			}
		}
		if k == len(e.beta) {
			return
		}
		var ok bool
		if scale, zero, ok = e.step(k, w, try, scale, zero); !ok {
			return
		}
		kernel.GridCodes(try, w, []float32{float32(zero)}, []float32{1 / float32(scale)}, e.spec.Bits)
	}
}

// step runs round k. It returns false where the grid cannot be stored.
func (e *halfQuadratic) step(k int, w []float32, codes []uint8, scale, zero float64) (float64, float64, bool) {
	mid := float64(int(1) << (e.spec.Bits - 1))
	if !e.spec.Symmetric {
		var move float64
		for i, v := range w {
			d := float64(v) - float64(scale*(float64(codes[i])-mid)) - zero
			if size := math.Abs(d); size > e.outlier[k] {
				d = math.Copysign(kernel.Exp(float64(e.power*kernel.Log(size)))/e.beta[k], d)
			}
			move += d
		}
		zero = e.spec.round(zero + move/float64(len(w)))
	}
	if e.scale {
		var num, den float64
		for i, v := range w {
			q := float64(codes[i]) - mid
			num += float64(q * (float64(v) - zero))
			den += float64(q * q)
		}
		if den > 0 {
			scale = e.spec.round(num / den)
		}
	}
	var reach float64
	for _, v := range w {
		reach = max(reach, math.Abs(float64(v)-zero))
	}
	return scale, zero, e.spec.storable(float32(scale), float32(zero), reach)
}
