package kernel

// lowestExp is the exponent below which exponentials count as 0: 1e-304 is lost in any sum with the largest term, 1.
const lowestExp = -700

// sumExpGeneric adds exp((x-top)*scale); position i belongs to lane i mod 8.
func sumExpGeneric(lanes *[8]float64, row []float32, top, scale float64) {
	for i, v := range row {
		if d := float64((float64(v) - top) * scale); !(d < lowestExp) {
			lanes[i%8] += Exp(d)
		}
	}
}

// softmaxExpGeneric replaces x by exp(x-top), rounded to float32, and adds that.
func softmaxExpGeneric(lanes *[8]float64, x []float32, top float64) {
	for i, v := range x {
		x[i] = 0
		if d := float64(v) - top; !(d < lowestExp) {
			x[i] = float32(Exp(d))
			lanes[i%8] += float64(x[i])
		}
	}
}

// exponentsAndSumsGeneric writes exp(x-top) in float32 to dst, adds that to rounded, and exp(x-top) as it is to lanes.
func exponentsAndSumsGeneric(lanes, rounded *[8]float64, dst, x []float32, top float64) {
	for i, v := range x[:len(dst)] {
		dst[i] = 0
		if d := float64(v) - top; !(d < lowestExp) {
			e := Exp(d)
			dst[i] = float32(e)
			lanes[i%8] += e
			rounded[i%8] += float64(dst[i])
		}
	}
}

func expsGeneric(dst []float64, x []float32, shift float64) {
	for i, v := range x[:len(dst)] {
		dst[i] = Exp(float64(v) - shift)
	}
}

func expsWideGeneric(x []float64) {
	for i, v := range x {
		x[i] = Exp(v)
	}
}

func exactScaleGeneric(dst, x []float32, scale float64) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(float64(v) * scale)
	}
}

func exactSiLUGeneric(dst, x []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] = float32(float64(v) / (1 + Exp(-float64(v))))
	}
}
