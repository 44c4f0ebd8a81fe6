//go:build !purego

package kernel

// gridLanes is the number of grids that the AVX-512 code takes at once; the AVX2 code takes half as many.
const gridLanes = 32

// gridWidth is the number of grids that the tier in use takes at once.
func gridWidth() int {
	if use.avx512 {
		return gridLanes
	}
	return gridLanes / 2
}

func gridSums(sums []float64, x, importance, zero, inverse []float32, bits int) {
	if !use.avx2 {
		gridSumsGeneric(sums, x, importance, zero, inverse, bits)
		return
	}
	least, most := gridBounds(bits)
	width, n := gridWidth(), len(zero)
	var out [3 * gridLanes]float32
	var pad [2][gridLanes]float32 // the last grids, and zeros
	for at := 0; at < n; at += width {
		z, f := zero[at:], inverse[at:]
		if len(z) < width {
			copy(pad[0][:], z)
			copy(pad[1][:], f)
			z, f = pad[0][:], pad[1][:]
		}
		gridSumsSIMD(&out[0], &x[0], &importance[0], &z[0], &f[0], len(x), least, most)
		m := min(width, n-at)
		for k := range 3 {
			addSums(sums[k*n+at:][:m], out[k*width:][:m])
		}
	}
}

func gridErrors(errors []float64, x, importance, zero, scale, inverse []float32, bits int) {
	if !use.avx2 {
		gridErrorsGeneric(errors, x, importance, zero, scale, inverse, bits)
		return
	}
	least, most := gridBounds(bits)
	width, n := gridWidth(), len(zero)
	var out [gridLanes]float32
	var pad [3][gridLanes]float32
	for at := 0; at < n; at += width {
		z, s, f := zero[at:], scale[at:], inverse[at:]
		if len(z) < width {
			copy(pad[0][:], z)
			copy(pad[1][:], s)
			copy(pad[2][:], f)
			z, s, f = pad[0][:], pad[1][:], pad[2][:]
		}
		gridErrorsSIMD(&out[0], &x[0], &importance[0], &z[0], &s[0], &f[0], len(x), least, most)
		m := min(width, n-at)
		addSums(errors[at:][:m], out[:m])
	}
}

// addSums adds the sums of a run.
func addSums(dst []float64, run []float32) {
	for i, v := range run[:len(dst)] {
		dst[i] += float64(v)
	}
}
