package kernel

import "math"

// ordered maps the bits of a float32 to an integer that orders as the values do, and back.
func ordered(bits int32) int32 { return bits ^ int32(uint32(bits>>31)>>1) }

func blockExtremesGeneric(lo, hi, x []float32, block int) {
	for i := range lo {
		l0, l1, h0, h1 := int32(math.MaxInt32), int32(math.MaxInt32), int32(math.MinInt32), int32(math.MinInt32)
		b := x[i*block : (i+1)*block]
		for len(b) >= 2 {
			v, w := ordered(int32(math.Float32bits(b[0]))), ordered(int32(math.Float32bits(b[1])))
			l0, l1, h0, h1 = min(l0, v), min(l1, w), max(h0, v), max(h1, w)
			b = b[2:]
		}
		if len(b) > 0 {
			v := ordered(int32(math.Float32bits(b[0])))
			l0, h0 = min(l0, v), max(h0, v)
		}
		lo[i] = math.Float32frombits(uint32(ordered(min(l0, l1))))
		hi[i] = math.Float32frombits(uint32(ordered(max(h0, h1))))
	}
}

// gridRound is 1.5*2^23. A float32 near it has no fraction: adding it rounds to the nearest integer, ties to even, and
// leaves that integer in the low bits, for magnitudes below 2^22.
const gridRound = 0x1.8p23

// gridTerms are the constants of a grid. The bias is exact and 2^(bits-1) is an integer: one addition rounds and
// shifts.
func gridTerms(bits int) (bias float32, top uint32) {
	return gridRound + float32(int(1)<<(bits-1)), 1<<bits - 1
}

func gridCodesGeneric(dst []uint8, x, zero, inverse []float32, block, bits int) {
	bias, top := gridTerms(bits)
	for i, z := range zero {
		f := inverse[i]
		w, codes := x[i*block:(i+1)*block], dst[i*block:(i+1)*block]
		for len(w) >= 4 && len(codes) >= 4 {
			a, b := (*[4]float32)(w), (*[4]uint8)(codes)
			b[0] = gridCode(a[0], f, z, bias, int32(top))
			b[1] = gridCode(a[1], f, z, bias, int32(top))
			b[2] = gridCode(a[2], f, z, bias, int32(top))
			b[3] = gridCode(a[3], f, z, bias, int32(top))
			w, codes = w[4:], codes[4:]
		}
		for i, v := range w {
			codes[i] = gridCode(v, f, z, bias, int32(top))
		}
	}
}

func gridCode(v, inverse, zero, bias float32, top int32) uint8 {
	// The conversion keeps compilers from fusing the product with the sum.
	q := int32(math.Float32bits(float32((v-zero)*inverse)+bias)) - 0x4b400000 // the bits of gridRound
	return uint8(min(max(q, 0), top))
}

func packCodesGeneric(dst []byte, codes []uint8, bits int) {
	switch bits {
	case 8:
		copy(dst, codes)
	case 4:
		for i := range dst {
			dst[i] = codes[2*i]<<4 | codes[2*i+1]
		}
	case 2:
		for i := range dst {
			c := codes[4*i : 4*i+4 : 4*i+4]
			dst[i] = c[0]<<6 | c[1]<<4 | c[2]<<2 | c[3]
		}
	default:
		var acc uint32
		n := 0
		for _, c := range codes {
			acc = acc<<bits | uint32(c)
			n += bits
			for n >= 8 {
				n -= 8
				dst[0] = byte(acc >> n)
				dst = dst[1:]
			}
		}
	}
}
