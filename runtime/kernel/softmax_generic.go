package kernel

import "math"

func softmaxGeneric(x []float32) {
	top := float64(maxOf(x))
	var s [8]float64
	for i, v := range x {
		e := float32(Exp(float64(v) - top))
		x[i] = e
		s[i%8] += float64(e)
	}
	scale := 1 / sumLanes(&s)
	for i, v := range x {
		x[i] = float32(float64(v) * scale)
	}
}

// sumExpGeneric is sum(exp(row - top)); position i belongs to lane i mod 8.
func sumExpGeneric(row []float32, top float32) float64 {
	var s [8]float64
	for i, v := range row {
		s[i%8] += Exp(float64(v) - float64(top))
	}
	return sumLanes(&s)
}

func siluGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(float64(v) / (1 + Exp(-float64(v))))
	}
}

// maxOf is the largest element, -Inf for none, NaN if one is NaN.
func maxOf(x []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top || v != v {
			top = v
		}
		if top != top {
			break
		}
	}
	return top
}
