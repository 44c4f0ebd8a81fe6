package sound

import "math"

// sincosf returns the sine and cosine that the C library of the engine computes (sinf and cosf of glibc 2.28 and later, on CPUs
// that fuse). Most are the nearest float32, one in 68 is a neighbour of it, and every bit of the engine's transform
// depends on them. x is 0 or at least 2^-12 in magnitude.
//
// With x = n pi/2 + r, polynomials of r in float64 are rounded once.
func sincosf(x float32) (sin, cos float32) {
	if x == 0 {
		return x, 1
	}
	r, n := reduce(x)
	s, c := polynomials(r)
	if n&1 != 0 {
		s, c = c, -s
	}
	if n&2 != 0 {
		s, c = -s, -c
	}
	return float32(s), float32(c)
}

// polynomials returns the sine and cosine of r, |r| <= pi/4.
func polynomials(r float64) (sin, cos float64) {
	const (
		s1 = -0x1.555545995a603p-3
		s2 = 0x1.1107605230bc4p-7
		s3 = -0x1.994eb3774cf24p-13
		c1 = -0x1.ffffffd0c621cp-2
		c2 = 0x1.55553e1068f19p-5
		c3 = -0x1.6c087e89a359dp-10
		c4 = 0x1.99343027bf8c3p-16
	)
	r2 := float64(r * r)
	r3, r4 := float64(r*r2), float64(r2*r2)
	sin = math.FMA(float64(r3*r2), math.FMA(r2, s3, s2), math.FMA(r3, s1, r))
	cos = math.FMA(float64(r4*r2), math.FMA(r2, c4, c3), math.FMA(r4, c2, math.FMA(r2, c1, 1)))
	return sin, cos
}

// reduce returns r and n with x = n pi/2 + r.
func reduce(x float32) (r float64, n int) {
	const halfPi = 0x1.921fb54442d18p0
	y := float64(x)
	switch a := math.Abs(y); {
	case a < 0.75:
		return y, 0
	case a < 120:
		// The quotient has 24 bits after the point.
		n = (int(int32(y*0x1.45f306dc9c883p+23)) + 0x800000) >> 24
		return math.FMA(-float64(n), halfPi, y), n
	}
	bits := math.Float32bits(x)
	first := int(bits >> 26 & 15)
	m := uint64(bits&0xffffff|0x800000) << (bits >> 23 & 7)
	q := m*fourOverPi(first)<<32 | m*fourOverPi(first+8)>>32
	q += m * fourOverPi(first+4)
	turn := (q + 1<<61) >> 62
	r, n = float64(int64(q-turn<<62))*0x1.921fb54442d18p-62, int(turn)
	if x < 0 {
		return -r, -n
	}
	return r, n
}

// fourOverPi returns the 32 bits of 4/pi that end with byte i after its leading 1.
func fourOverPi(i int) (word uint64) {
	const digits = "\xa2\xf9\x83\x6e\x4e\x44\x15\x29\xfc\x27\x57\xd1\xf5\x34\xdd\xc0\xdb\x62\x95\x99\x3c\x43\x90\x41"
	for j := max(i-3, 0); j <= i; j++ {
		word = word<<8 | uint64(digits[j])
	}
	return word
}
