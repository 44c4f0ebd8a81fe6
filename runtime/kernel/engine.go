package kernel

import "math"

// The Engine functions compute the float ops between linear layers with the operations of MNN on x86, in MNN's order,
// so that their results have the engine's bits. Quantized activations need that: a difference in the last bit of a
// norm changes single int8 codes, and the changes grow from layer to layer. MNN's x86 build takes two kinds of
// functions: those of x86_x64/avx never fuse a product into a sum, those of x86_x64/avxfma do where the CPU can,
// and every CPU with AVX2 since 2013 can.

// fma32 is x*y + z, rounded once to float32. All three hold values of float32, and so does the result.
func fma32(x, y, z float64) float64 {
	p := float64(x * y) // exact
	s := p + z
	if !twice(s) {
		return float64(float32(s))
	}
	// With an odd last bit where the first rounding dropped something, the second one cannot mistake a sum for a tie.
	t := s - p
	rest := (p - (s - t)) + (z - t)
	b := math.Float64bits(s)
	switch {
	case rest == 0 || b&1 != 0:
	case (rest > 0) == (s > 0):
		b++
	default:
		b--
	}
	return float64(float32(math.Float64frombits(b)))
}

// FMA is x*y + z, rounded once, with a result of at least 2^-126 or 0.
func FMA(x, y, z float32) float32 { return float32(fma32(float64(x), float64(y), float64(z))) }

// twice reports whether rounding s, a rounded sum, once more could go wrong: s lies in the middle of two float32, or the
// float32 is subnormal. A sum of 0 is exact.
func twice(s float64) bool {
	b := math.Float64bits(s)
	return b&(1<<29-1) == 1<<28 || b<<1-1 < 0x381<<53-1
}
