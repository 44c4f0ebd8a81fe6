package kernel

// gridBounds are the least and the largest code.
func gridBounds(bits int) (least, most float32) {
	mid := float32(int(1) << (bits - 1))
	return -mid, mid - 1
}

// nearestCode rounds a quotient to a code. Conversions keep compilers from fusing products with sums.
func nearestCode(t, least, most float32) float32 {
	return float32(min(max(t, least), most)+gridRound) - gridRound
}

// gridSumsGeneric adds the sums of one run to sums.
func gridSumsGeneric(sums []float64, x, importance, zero, inverse []float32, bits int) {
	least, most := gridBounds(bits)
	n := len(zero)
	importance = importance[:len(x)]
	for g, z := range zero {
		f := inverse[g]
		var s0, s1, s2 float32
		for i, v := range x {
			q := nearestCode(float32((v-z)*f), least, most)
			p := float32(importance[i] * q)
			s0 += p
			s1 += float32(p * q)
			s2 += float32(p * v)
		}
		sums[g] += float64(s0)
		sums[n+g] += float64(s1)
		sums[2*n+g] += float64(s2)
	}
}

// gridErrorsGeneric adds the errors of one run to errors.
func gridErrorsGeneric(errors []float64, x, importance, zero, scale, inverse []float32, bits int) {
	least, most := gridBounds(bits)
	importance = importance[:len(x)]
	for g, z := range zero {
		f, s := inverse[g], scale[g]
		var sum float32
		for i, v := range x {
			d := v - z
			q := nearestCode(float32(d*f), least, most)
			d -= float32(q * s)
			p := float32(importance[i] * d)
			sum += float32(p * d)
		}
		errors[g] += float64(sum)
	}
}
