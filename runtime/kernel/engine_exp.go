package kernel

import "math"

// Constants of MNNExp (CommonOptFunction.cpp): ln 2 and its inverse in float32, and 1/n! for n = 5 down to 2.
const (
	engineLn2    = float32(0x1.62e43p-1)
	engineInvLn2 = float32(0x1.715476p0)
	engineInv120 = float32(1) / 120
	engineInv24  = float32(1) / 24
	engineInv6   = float32(1) / 6
)

// engineExp is e**x for x limited to -87..87, as MNN computes it for groups of eight elements: with k the integer
// nearest to x/ln 2 and t = (x - k ln 2)/4,
//
//	2^k * (1 + t + t²/2 + t³/6 + t⁴/24 + t⁵/120)⁴
//
// Emulates _AVX_MNNExpC8FMA (avxfma/MathFunctions.cpp).
func engineExp(x float32) float32 {
	x = min(max(x, -87), 87)
	k := roundEven(float32(x * engineInvLn2))
	t := fma32(-float64(k), float64(engineLn2), float64(x)) / 4
	p := fma32(float64(engineInv120), t, float64(engineInv24))
	p = fma32(p, t, float64(engineInv6))
	p = fma32(p, t, 0.5)
	p = fma32(p, t, 1)
	e := float32(fma32(p, t, 1))
	e *= e
	e *= e
	return math.Float32frombits(uint32(k+127)<<23) * e
}

// engineExpsGeneric writes engineExp of len(dst) elements of x, a multiple of eight, to dst.
func engineExpsGeneric(dst, x []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = engineExp(v)
	}
}

// engineExpTail is engineExp for the last len%8 elements: k is x/ln 2 without its fraction, and nothing is fused.
//
// Emulates the loop over the remainder in MNNExp (CommonOptFunction.cpp).
func engineExpTail(x float32) float32 {
	x = min(max(x, -87), 87)
	k := int32(x * engineInvLn2)
	t := (x - float32(float32(k)*engineLn2)) / 4
	p := float32(engineInv120*t) + engineInv24
	p = float32(p*t) + engineInv6
	p = float32(p*t) + 0.5
	p = float32(p*t) + 1
	p = float32(p*t) + 1
	p *= p
	p *= p
	return math.Float32frombits(uint32(k+127)<<23) * p
}

// expf is the function of that name in the C library that the engine calls for single elements (glibc 2.27 and later,
// on CPUs that fuse): with k = round(32*x/ln 2) and r = 32*x/ln 2 - k it is 2^(k/32) times a cubic polynomial of r, in
// float64, rounded once.
func expf(x float32) float32 {
	const (
		invLn2 = 0x1.71547652b82fep+5
		c3     = 0x1.c6af84b912394p-20
		c2     = 0x1.ebfce50fac4f3p-13
		c1     = 0x1.62e42ff0c52d6p-6
		shift  = 0x1.8p52
	)
	switch {
	case x != x:
		return x
	case x > 0x1.62e42ep6:
		return float32(math.Inf(1))
	case x < -0x1.9fe368p6:
		return 0
	}
	d := float64(x)
	kd := math.FMA(invLn2, d, shift)
	k := int64(math.Float64bits(kd)<<13) >> 13
	kd -= shift
	r := math.FMA(invLn2, d, -kd)
	y := math.FMA(math.FMA(c3, r, c2), r*r, math.FMA(c1, r, 1))
	s := math.Float64bits(roots[k&31]) + uint64(k>>5)<<52
	return float32(y * math.Float64frombits(s))
}

// roots are 2^(k/32), rounded.
var roots = [32]float64{
	0x1.0000000000000p0, 0x1.059b0d3158574p0, 0x1.0b5586cf9890fp0, 0x1.11301d0125b51p0,
	0x1.172b83c7d517bp0, 0x1.1d4873168b9aap0, 0x1.2387a6e756238p0, 0x1.29e9df51fdee1p0,
	0x1.306fe0a31b715p0, 0x1.371a7373aa9cbp0, 0x1.3dea64c123422p0, 0x1.44e086061892dp0,
	0x1.4bfdad5362a27p0, 0x1.5342b569d4f82p0, 0x1.5ab07dd485429p0, 0x1.6247eb03a5585p0,
	0x1.6a09e667f3bcdp0, 0x1.71f75e8ec5f74p0, 0x1.7a11473eb0187p0, 0x1.82589994cce13p0,
	0x1.8ace5422aa0dbp0, 0x1.93737b0cdc5e5p0, 0x1.9c49182a3f090p0, 0x1.a5503b23e255dp0,
	0x1.ae89f995ad3adp0, 0x1.b7f76f2fb5e47p0, 0x1.c199bdd85529cp0, 0x1.cb720dcef9069p0,
	0x1.d5818dcfba487p0, 0x1.dfc97337b9b5fp0, 0x1.ea4afa2a490dap0, 0x1.f50765b6e4540p0,
}
