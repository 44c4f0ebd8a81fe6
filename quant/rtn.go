package quant

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// RTN rounds to the nearest point of the grid that the block's extremes span, and uses no data.
//
// Asymmetric: scale = (max-min)/(2^b-1), zero = min + scale*2^(b-1), both rounded to their stored type
// before the codes are chosen. Symmetric: scale = m/-2^(b-1) with m the weight of largest magnitude and
// its sign, so that m itself is on the grid and all 2^b codes are used. Cost: two passes over the row.
type RTN struct{}

// Name implements Method.
func (RTN) Name() string { return "rtn" }

// Closeness implements Method.
func (RTN) Closeness() Closeness { return Closeness{Weights: Rounded} }

// Needs implements Method.
func (RTN) Needs() Needs { return Nothing }

// Validate implements Method.
func (RTN) Validate() error { return nil }

// Prepare implements Quantizer.
func (RTN) Prepare(s Spec, cols int, _ *Stats, _ int) (Encoder, error) {
	if s.Bits == 16 {
		return nil, fmt.Errorf("internal error: 16-bit weights are not encoded by a method")
	}
	return nearest{s}, nil
}

// nearest encodes by rounding to the nearest point.
type nearest struct{ spec Spec }

// tiny is the scale of a block whose weights are all equal: the zero term holds them (or they are 0). It is
// the smallest normal half, so that both scale types hold it exactly.
const tiny = 0x1p-14

// groupWeights and groupBlocks bound a group that is encoded at once: weights that stay in the L1 cache between the
// two passes, and terms that fit the stack.
const (
	groupWeights = 1 << 13
	groupBlocks  = 256
)

// Encode implements Encoder.
func (n nearest) Encode(dst Blocks, w Matrix) error {
	s := n.spec
	l, err := s.Layout(w.Rows, w.Cols)
	if err != nil {
		return err
	}
	var g grid
	group := max(1, min(groupBlocks, groupWeights/l.BlockCols))
	for lo, total := 0, l.Rows*l.Blocks; lo < total; lo += group {
		hi := min(lo+group, total)
		if g.encode(&dst, w.Data, s, l.BlockCols, lo, hi) {
			continue
		}
		for lo < hi && g.encode(&dst, w.Data, s, l.BlockCols, lo, lo+1) {
			lo++
		}
		return fmt.Errorf("row %d: %w", lo/l.Blocks, refusal(w.Data[lo*l.BlockCols:(lo+1)*l.BlockCols]))
	}
	return nil
}

// refusal returns the reason why a block has no grid.
func refusal(block []float32) error {
	if kernel.NonFinite(block) >= 0 {
		return fmt.Errorf("weight is NaN or infinite: %w", tensor.ErrCorrupt)
	}
	var lo, hi [1]float32
	kernel.BlockExtremes(lo[:], hi[:], block)
	if !isFinite(hi[0] - lo[0]) {
		return fmt.Errorf("weights span more than a float32: %w", tensor.ErrUnsupported)
	}
	return fmt.Errorf("weights from %g to %g need a scale or zero term beyond fp16; use fp32 scales: %w", lo[0], hi[0], tensor.ErrUnsupported)
}

// grid has room for the terms of a group of blocks.
type grid struct {
	lo, hi, zero, inverse [groupBlocks]float32
	halves                [2 * groupBlocks]byte
}

// encode takes blocks from to to-1, counted through all rows. It returns false if one of them has no grid.
func (g *grid) encode(dst *Blocks, weights []float32, s Spec, block, from, to int) bool {
	n := to - from
	w, scale := weights[from*block:to*block], dst.Scale[from:to]
	kernel.BlockExtremes(g.lo[:n], g.hi[:n], w)
	zero := g.zero[:n]
	if s.Symmetric {
		clear(zero)
		if !g.symmetric(scale, s) {
			return false
		}
	} else {
		zero = dst.Zero[from:to]
		if !g.asymmetric(scale, zero, s) {
			return false
		}
	}
	for i, v := range scale {
		g.inverse[i] = 1 / v
	}
	// Quotients stay below 2^22 as GridCodes needs: a block that is not constant is at least one ulp of its largest
	// weight wide, fp16 moves the zero term by at most 2^13 such ulps, which are 2^13*levels steps, and a subnormal scale
	// by a factor of 1.5.
	kernel.GridCodes(dst.Codes[from*block:to*block], w, zero, g.inverse[:n], s.Bits)
	return true
}

// asymmetric chooses scales and zero terms for the extremes. It returns false if they are beyond the spec's type or
// the block is not finite.
func (g *grid) asymmetric(scale, zero []float32, s Spec) bool {
	levels, mid := float32(int(1)<<s.Bits-1), float32(int(1)<<(s.Bits-1))
	lo, hi := g.lo[:len(scale)], g.hi[:len(scale)]
	ok := true
	for i := range scale {
		d := hi[i] - lo[i]
		ok = ok && isFinite(d) // a NaN makes it NaN, an infinity makes it infinite or NaN
		scale[i] = d / levels
	}
	least := float32(math.SmallestNonzeroFloat32 * (1 << 24))
	if s.Scale == tensor.F16 {
		g.round(scale)
		least = 0x1p-24 // of all halves but 0
	}
	zero = zero[:len(scale)]
	for i, v := range scale {
		if v < least {
			v = tiny
			scale[i] = v
		}
		z := lo[i] + float32(v*mid)
		if hi[i] == lo[i] {
			z = lo[i]
		}
		zero[i] = z
	}
	if s.Scale == tensor.F16 {
		g.round(zero)
	}
	for i, v := range scale {
		ok = ok && isFinite(v) && isFinite(zero[i])
	}
	return ok
}

// symmetric chooses scales.
func (g *grid) symmetric(scale []float32, s Spec) bool {
	mid := float32(int(1) << (s.Bits - 1))
	lo, hi := g.lo[:len(scale)], g.hi[:len(scale)]
	ok := true
	for i := range scale {
		ok = ok && isFinite(hi[i]-lo[i])
		m := hi[i]
		if -lo[i] > m {
			m = lo[i]
		}
		scale[i] = m / -mid
	}
	if s.Scale == tensor.F16 {
		g.round(scale)
	}
	for i, v := range scale {
		if v > -0x1p-120 && v < 0x1p-120 {
			scale[i] = tiny
		}
		ok = ok && isFinite(v)
	}
	return ok
}

// round rounds to halves.
func (g *grid) round(v []float32) {
	b := g.halves[:2*len(v)]
	kernel.F32ToF16(b, v)
	kernel.F16ToF32(v, b)
}

func isFinite(v float32) bool { return v-v == 0 }
