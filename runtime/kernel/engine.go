package kernel

import "math"

// The Engine functions compute the float ops between linear layers with the operations of MNN on x86, in MNN's order,
// so that their results have the engine's bits. Quantized activations need that: a difference in the last bit of a
// norm changes single int8 codes, and the changes grow from layer to layer. MNN's x86 build takes two kinds of
// functions: those of x86_x64/avx never fuse a product into a sum, those of x86_x64/avxfma do where the CPU can,
// and every CPU with AVX2 since 2013 can.

// fma32 is x*y + z, rounded once to float32. All three hold values of float32, and so does the result. A result below
// the smallest normal float32 may be off by one unit.
func fma32(x, y, z float64) float64 {
	p := float64(x * y) // exact
	s := p + z
	if !midway(s) {
		return float64(float32(s))
	}
	// What the first rounding dropped decides the second one.
	t := s - p
	rest := (p - (s - t)) + (z - t)
	b := math.Float64bits(s)
	switch {
	case rest == 0:
	case (rest > 0) == (s > 0):
		b++
	default:
		b--
	}
	return float64(float32(math.Float64frombits(b)))
}

// midway says whether s lies in the middle of two float32, where rounding a rounded sum once more could go wrong.
func midway(s float64) bool { return math.Float64bits(s)&(1<<29-1) == 1<<28 }

// add32 is the sum of two values of float32, as a float32.
func add32(x, y float64) float64 { return float64(float32(x) + float32(y)) }
