package kernel

// gemmSumsGeneric is the definition of a segment. Columns from t.cols on may be left out or not.
func gemmSumsGeneric(t *gemmTile) {
	for i := range t.rows {
		row := t.c[i*t.ldc:]
		for j := 0; j < t.cols; j += 8 {
			var sums [8]float32
			gemmColumns(&sums, t.a[i:], t.b[j:], t.rows, t.k)
			c := row[j : j+8]
			if !t.add {
				copy(c, sums[:])
				continue
			}
			for l, s := range sums {
				c[l] += s
			}
		}
	}
}

// gemmColumns sums k positions of eight columns; a has a row's elements lda apart.
func gemmColumns(sums *[8]float32, a, b []float32, lda, k int) {
	var d0, d1, d2, d3, d4, d5, d6, d7 float64
	for p := range k {
		v, w := float64(a[p*lda]), (*[8]float32)(b[p*PanelRows:])
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
	*sums = [8]float32{float32(d0), float32(d1), float32(d2), float32(d3), float32(d4), float32(d5), float32(d6), float32(d7)}
}
