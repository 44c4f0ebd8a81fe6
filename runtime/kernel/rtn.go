package kernel

import "fmt"

// BlockExtremes stores the smallest and the largest of each block of x in lo and hi, in the total order of IEEE 754:
// -NaN, -Inf, ..., -0, +0, ..., +Inf, +NaN. A block that holds a NaN has one as an extreme. There are len(lo) blocks of
// the same length. BlockExtremes panics unless lo and hi have the same length and x as many elements for each block, at
// least one.
func BlockExtremes(lo, hi, x []float32) {
	block := blockLength("BlockExtremes", len(x), len(lo), len(hi))
	if len(lo) > 0 {
		blockExtremes(lo, hi, x, block)
	}
}

// GridCodes stores clamp(round((x-zero)*inverse) + 2^(bits-1), 0, 2^bits-1) for each x, one code in a byte, rounding
// to nearest with ties to even. x consists of len(zero) blocks of the same length, each with its own zero and inverse.
// Every operation rounds to float32. x must be finite and (x-zero)*inverse below 2^22 in magnitude. GridCodes panics
// unless dst and x, and zero and inverse, have the same length, x as many elements for each block, at least one, and
// bits is from 1 to 8.
func GridCodes(dst []uint8, x, zero, inverse []float32, bits int) {
	block := blockLength("GridCodes", len(x), len(zero), len(inverse))
	if len(dst) != len(x) || bits < 1 || bits > 8 {
		panic(fmt.Sprintf("internal error: kernel.GridCodes: %d codes of %d bits for %d values", len(dst), bits, len(x)))
	}
	if len(zero) > 0 {
		gridCodes(dst, x, zero, inverse, block, bits)
	}
}

// PackCodes writes one stream of codes of bits bits, the most significant first. Upper bits of codes must be 0. It
// panics unless bits is from 1 to 8 and dst has exactly len(codes)*bits/8 bytes.
func PackCodes(dst []byte, codes []uint8, bits int) {
	if bits < 1 || bits > 8 || len(codes)*bits != len(dst)*8 {
		panic(fmt.Sprintf("internal error: kernel.PackCodes: %d codes of %d bits and %d bytes", len(codes), bits, len(dst)))
	}
	packCodes(dst, codes, bits)
}

// blockLength is the length of each of n blocks of elements; every block has an entry in two slices.
func blockLength(name string, elements, n, other int) int {
	if n != other || n == 0 && elements > 0 || n > 0 && (elements < n || elements%n != 0) {
		panic(fmt.Sprintf("internal error: kernel.%s: %d values for %d and %d blocks", name, elements, n, other))
	}
	if n == 0 {
		return 0
	}
	return elements / n
}
