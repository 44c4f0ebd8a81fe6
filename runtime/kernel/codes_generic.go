package kernel

import "math"

func beyondGeneric(x, limits []float32, factor float32) int {
	limits = limits[:len(x)]
	for i, v := range x {
		if !(math.Float32frombits(math.Float32bits(v)&^(1<<31)) < limits[i]*factor) {
			return i
		}
	}
	return len(x)
}

func codeSumsGeneric(code, x []float32) (products, sum float64) {
	code = code[:len(x)]
	for i, v := range x {
		products += float64(float64(code[i]) * float64(v))
		sum += float64(v)
	}
	return products, sum
}

func codeErrorsGeneric(dst []float32, squares []float64, value, zero, scale, inverse []float32, divisor float32, bits int) {
	least, most := gridBounds(bits)
	squares, value, zero, scale, inverse = squares[:len(dst)], value[:len(dst)], zero[:len(dst)], scale[:len(dst)], inverse[:len(dst)]
	for i, v := range value {
		q := nearestCode(float32((v-zero[i])*inverse[i]), least, most)
		err := (v - (float32(scale[i]*q) + zero[i])) / divisor
		dst[i] = -err
		squares[i] += float64(float64(err) * float64(err))
	}
}
