package kernel

import "math"

// F16Bits rounds x to IEEE half precision, to nearest with ties to even, and returns its bits. Values of
// magnitude 65520 and more become infinities, values below 2^-14 subnormal or zero; the sign is kept. A
// NaN stays a NaN: it becomes quiet and keeps the upper bits of its payload, as the conversion
// instructions of amd64 and arm64 do.
func F16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x477ff000: // 65520, half way between the largest value and 2^16
		return sign | 0x7c00
	case b >= 0x38800000: // 2^-14, the smallest normal value
		b += 0xfff + b>>13&1
		return sign | uint16((b-0x38000000)>>13)
	}
	// The last place of a float32 in [0.5, 1) is 2^-24, that of a subnormal half: the addition rounds.
	half := math.Float32frombits(b) + 0.5
	return sign | uint16(math.Float32bits(half)-math.Float32bits(0.5))
}

// F16Value is the value of IEEE half-precision bits; a NaN becomes quiet.
func F16Value(bits uint16) float32 {
	sign := uint32(bits&0x8000) << 16
	rest := uint32(bits & 0x7fff)
	switch {
	case rest > 0x7c00:
		return math.Float32frombits(sign | 0x7fc00000 | rest<<13)
	case rest == 0x7c00:
		return math.Float32frombits(sign | 0x7f800000)
	case rest >= 0x400:
		return math.Float32frombits(sign | (rest<<13 + 0x38000000))
	}
	return math.Float32frombits(sign | math.Float32bits(float32(rest)*0x1p-24))
}

// RoundF16 is x rounded to half precision.
func RoundF16(x float32) float32 { return F16Value(F16Bits(x)) }
