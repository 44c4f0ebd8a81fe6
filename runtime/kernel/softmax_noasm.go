//go:build !amd64 || purego

package kernel

func sumExp(lanes *[8]float64, row []float32, top, scale float64) {
	sumExpGeneric(lanes, row, top, scale)
}

func softmaxExp(lanes *[8]float64, x []float32, top float64) { softmaxExpGeneric(lanes, x, top) }

func exactScale(x []float32, scale float64) { exactScaleGeneric(x, scale) }

func exactSiLU(dst, x []float32) { exactSiLUGeneric(dst, x) }

func divergence(lanes *[8]float64, p, q []float32, norm, shift float64) {
	divergenceGeneric(lanes, p, q, norm, shift)
}
