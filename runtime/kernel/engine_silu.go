package kernel

// EngineSiLU writes x / (1 + exp(-x)) to dst in float32, with exp of groups of eight elements as one polynomial and of
// the last len%8 elements as another. dst may be x itself. Pieces of a tensor must start at multiples of eight, as the
// engine's threads do. It panics unless both have the same length.
//
// Emulates MNNSiLu and MNNExp (CommonOptFunction.cpp).
func EngineSiLU(dst, x []float32) {
	if len(dst) != len(x) {
		panic("internal error: kernel.EngineSiLU: lengths differ")
	}
	full := len(x) &^ 7
	var e [64]float32
	for lo := 0; lo < full; lo += len(e) {
		hi := min(lo+len(e), full)
		e := e[:hi-lo]
		for i, v := range x[lo:hi] {
			e[i] = -v
		}
		engineExps(e, e)
		for i, v := range x[lo:hi] {
			dst[lo+i] = v / (1 + e[i])
		}
	}
	for i, v := range x[full:] {
		dst[full+i] = v / (1 + engineExpTail(-v))
	}
}
