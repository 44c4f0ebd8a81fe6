package kernel

import "math"

// rmsNormGeneric is the definition of RMSNorm. Lane l of eight adds the squares of positions l, l+8, ...;
// the square of a float32 is exact in float64.
func rmsNormGeneric(dst, x, gamma []float32, rows int, eps float32) {
	width := len(gamma)
	for ; rows > 0; rows-- {
		row := x[:width]
		var s [8]float64
		rest := row
		for len(rest) >= 8 {
			v := (*[8]float32)(rest)
			for l := range s {
				s[l] += float64(float64(v[l]) * float64(v[l]))
			}
			rest = rest[8:]
		}
		exactNormalizeTail(dst[:width], row, gamma, 0, exactInvStd(&s, rest, width, eps))
		dst, x = dst[width:], x[width:]
	}
}

// exactInvStd is 1/sqrt(mean + eps), for the sums of the full groups of eight and the last elements of a row.
func exactInvStd(s *[8]float64, rest []float32, width int, eps float32) float64 {
	for l, v := range rest {
		s[l] += float64(float64(v) * float64(v))
	}
	return 1 / math.Sqrt(sumLanes(s)/float64(width)+float64(eps))
}

// exactNormalizeTail writes the elements of a row from from on.
func exactNormalizeTail(dst, x, gamma []float32, from int, scale float64) {
	gamma, dst = gamma[:len(x)], dst[:len(x)]
	for i := from; i < len(x); i++ {
		dst[i] = float32(float64(float64(x[i])*scale) * float64(gamma[i]))
	}
}

// sumLanes adds eight partial sums as ((0+4)+(2+6)) + ((1+5)+(3+7)).
func sumLanes(s *[8]float64) float64 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}
