package kernel

import "math"

// rmsNormGeneric is the definition of RMSNorm. Lane l of eight adds the squares of positions l, l+8, ...;
// the square of a float32 is exact in float64.
func rmsNormGeneric(dst, x, gamma []float32, eps float32) {
	var s [8]float64
	rest := x
	for len(rest) >= 8 {
		v := (*[8]float32)(rest)
		for l := range s {
			s[l] += float64(float64(v[l]) * float64(v[l]))
		}
		rest = rest[8:]
	}
	for l, v := range rest {
		s[l] += float64(float64(v) * float64(v))
	}
	scale := 1 / math.Sqrt(sumLanes(&s)/float64(max(len(x), 1))+float64(eps))
	gamma, dst = gamma[:len(x)], dst[:len(x)]
	for i, v := range x {
		dst[i] = float32(float64(float64(v)*scale) * float64(gamma[i]))
	}
}

// sumLanes adds eight partial sums in the order of MatMulT.
func sumLanes(s *[8]float64) float64 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}
