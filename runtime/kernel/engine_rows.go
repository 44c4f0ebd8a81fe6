package kernel

// fmaRowsGeneric adds x[i]*rows[i*stride+c] to dst[c] for all i in ascending order, as fma32 does. len(dst) is a multiple
// of eight.
func fmaRowsGeneric(dst, x, rows []float32, stride int) {
	for c := 0; c+8 <= len(dst); c += 8 {
		d := (*[8]float32)(dst[c:])
		d0, d1, d2, d3 := float64(d[0]), float64(d[1]), float64(d[2]), float64(d[3])
		d4, d5, d6, d7 := float64(d[4]), float64(d[5]), float64(d[6]), float64(d[7])
		for i := range x {
			v, w := float64(x[i]), (*[8]float32)(rows[i*stride+c:])
			w0, w1, w2, w3 := float64(w[0]), float64(w[1]), float64(w[2]), float64(w[3])
			w4, w5, w6, w7 := float64(w[4]), float64(w[5]), float64(w[6]), float64(w[7])
			s0, s1, s2, s3 := float64(v*w0)+d0, float64(v*w1)+d1, float64(v*w2)+d2, float64(v*w3)+d3
			s4, s5, s6, s7 := float64(v*w4)+d4, float64(v*w5)+d5, float64(v*w6)+d6, float64(v*w7)+d7
			if twice(s0) || twice(s1) || twice(s2) || twice(s3) || twice(s4) || twice(s5) || twice(s6) || twice(s7) {
				s0, s1, s2, s3 = fma32(v, w0, d0), fma32(v, w1, d1), fma32(v, w2, d2), fma32(v, w3, d3)
				s4, s5, s6, s7 = fma32(v, w4, d4), fma32(v, w5, d5), fma32(v, w6, d6), fma32(v, w7, d7)
			}
			d0, d1, d2, d3 = float64(float32(s0)), float64(float32(s1)), float64(float32(s2)), float64(float32(s3))
			d4, d5, d6, d7 = float64(float32(s4)), float64(float32(s5)), float64(float32(s6)), float64(float32(s7))
		}
		*d = [8]float32{float32(d0), float32(d1), float32(d2), float32(d3), float32(d4), float32(d5), float32(d6), float32(d7)}
	}
}
