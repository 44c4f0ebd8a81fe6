package kernel

// gemmSumsGeneric is the definition of a segment. Columns from t.cols on may be left out or not.
func gemmSumsGeneric(t *gemmTile) {
	for i := range t.rows {
		row := t.c[i*t.ldc:]
		for j := 0; j < t.cols; j += 8 {
			var sums [8]float32
			fmaColumns(&sums, t.a[i:], t.b[j:], t.k, t.rows, PanelRows)
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
