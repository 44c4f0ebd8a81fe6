//go:build !purego

package kernel

func beyond(x, limits []float32, factor float32) int {
	at := 0
	for use.avx2 && len(x)-at >= 8 {
		n := piece(len(x) - at)
		i := beyondSIMD(&x[at], &limits[at], n, factor)
		if at += i; i < n {
			return at
		}
	}
	return at + beyondGeneric(x[at:], limits[at:], factor)
}

// codeSumsSpan is how much larger, as a power of two, the largest element may be than the least that is not 0. Then all sums of some of 128
// products with codes of 8 bits are exact, so that their order does not matter: elements have 24 bits, and sums 24+7+7+15 = 53 at most.
const codeSumsSpan = 15

func codeSums(code, x []float32) (products, sum float64) {
	if use.avx2 && len(x) >= 8 && len(x)%8 == 0 {
		p, s, most, least := codeSumsSIMD(&code[0], &x[0], len(x))
		if most < infinity && (least+1)>>23+codeSumsSpan >= most>>23 {
			return p, s
		}
	}
	return codeSumsGeneric(code, x)
}

func codeErrors(dst []float32, squares []float64, value, zero, scale, inverse []float32, divisor float32, bits int) {
	least, most := gridBounds(bits)
	at := 0
	for use.avx2 && len(dst)-at >= 8 {
		n := piece(len(dst) - at)
		codeErrorsSIMD(&dst[at], &squares[at], &value[at], &zero[at], &scale[at], &inverse[at], n, divisor, least, most)
		at += n
	}
	codeErrorsGeneric(dst[at:], squares[at:], value[at:], zero[at:], scale[at:], inverse[at:], divisor, bits)
}
