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
	engineSiLU(dst[:full], x[:full])
	for i, v := range x[full:] {
		dst[full+i] = v / (1 + engineExpTail(-v))
	}
}

// EngineSiLUMul writes up * silu(gate) to dst, with the bits of [EngineSiLU], and of its pieces, and one more rounding
// for the product. dst may be gate or up. It panics unless all have the same length.
func EngineSiLUMul(dst, gate, up []float32) {
	checkThree("EngineSiLUMul", dst, gate, up)
	full := len(gate) &^ 7
	engineSiLUMul(dst[:full], gate[:full], up[:full])
	for i, v := range gate[full:] {
		dst[full+i] = float32(v/(1+engineExpTail(-v))) * up[full+i]
	}
}

// engineSiLUGeneric takes a multiple of eight elements.
func engineSiLUGeneric(dst, x []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = v / (1 + engineExp(-v))
	}
}

// engineSiLUMulGeneric takes a multiple of eight elements.
func engineSiLUMulGeneric(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	for i, v := range gate {
		dst[i] = float32(v/(1+engineExp(-v))) * up[i]
	}
}
