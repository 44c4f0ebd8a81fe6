package kernel

import "math"

// logf is the function of that name in the C library that the engine calls (glibc 2.27 and later, on CPUs that fuse). With
// x = 2^k z, z near 1, and c near z so that 1/c and log c are in a table, it is
//
//	k ln 2 + log c + log(1 + r)        r = z/c - 1
//
// with a cubic polynomial for the last term, in float64, rounded once.
func logf(x float32) float32 {
	const (
		ln2    = 0x1.62e42fefa39efp-1
		a0     = -0x1.00ea348b88334p-2
		a1     = 0x1.5575b0be00b6ap-2
		a2     = -0x1.ffffef20a4123p-2
		offset = 0x3f330000
	)
	bits := math.Float32bits(x)
	switch {
	case x == 1:
		return 0
	case x == 0:
		return float32(math.Inf(-1))
	case x != x || x < 0:
		return float32(math.NaN())
	case x > math.MaxFloat32:
		return x
	case bits < 0x00800000:
		bits = math.Float32bits(x*0x1p23) - 23<<23
	}
	t := bits - offset
	c := &logs[t>>19&15]
	k := float64(int32(t) >> 23)
	z := float64(math.Float32frombits(bits - t&0xff800000))
	r := math.FMA(z, c[0], -1)
	y := math.FMA(a1, r, a2)
	r2 := float64(r * r)
	y = math.FMA(r2, a0, y)
	return float32(math.FMA(r2, y, r+math.FMA(k, ln2, c[1])))
}

// logs are 1/c and log c, for a c in each sixteenth of the range of z.
var logs = [16][2]float64{
	{0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2}, {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
	{0x1.49539f0f010b0p+0, -0x1.01eae7f513a67p-2}, {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
	{0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3}, {0x1.25e227b0b8ea0p+0, -0x1.1aa2bc79c8100p-3},
	{0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4}, {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
	{0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5}, {0x1p+0, 0},
	{0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5}, {0x1.ca4b31f026aa0p-1, 0x1.c5e53aa362eb4p-4},
	{0x1.b2036576afce6p-1, 0x1.526e57720db08p-3}, {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d224770p-3},
	{0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2}, {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
}
