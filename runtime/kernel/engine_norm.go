package kernel

import "math"

// EngineRMSNormRows writes x / sqrt(mean(x²) + eps) * gamma to dst, for each row of x [rows, len(gamma)], in float32:
//
//	lane l = x[l]² + x[l+8]² + ...                over the full groups of eight
//	sum    = lane 0 + ... + lane 7, then the squares of the last len%8 elements
//	inv    = 1 / sqrt(sum/len + eps)
//	dst    = (x*gamma) * inv
//
// dst may be x itself. It panics unless both have that many rows.
//
// Emulates _AVX_MNNNorm (avx/MathFunctions.cpp), which CPULayerNorm and CPURoPE call for rows that lie in one piece and
// for a single token in the packed layout.
func EngineRMSNormRows(dst, x, gamma []float32, rows int, eps float32) {
	norm(engineNorm).rows("EngineRMSNormRows", dst, x, gamma, rows, eps)
}

// EngineRMSNormPackedRows is EngineRMSNormRows for two or more tokens in the layout NC4HW4: squares are added one by one, and
// the result is (x*inv) * gamma.
//
// Emulates _MNNNormPacked_Float (x86_x64/AVX2Functions.cpp), which MNN has since 3.6.1.
func EngineRMSNormPackedRows(dst, x, gamma []float32, rows int, eps float32) {
	norm(enginePackedNorm).rows("EngineRMSNormPackedRows", dst, x, gamma, rows, eps)
}

func engineNormGeneric(dst, x, gamma []float32, rows int, eps float32) {
	width := len(gamma)
	for ; rows > 0; rows-- {
		row := x[:width]
		var lanes [8]float32
		rest := row
		for len(rest) >= 8 {
			v := (*[8]float32)(rest)
			for l := range lanes {
				lanes[l] += float32(v[l] * v[l])
			}
			rest = rest[8:]
		}
		engineNormalizeTail(dst[:width], row, gamma, 0, engineInvStd(engineLaneSum(&lanes), rest, width, eps))
		dst, x = dst[width:], x[width:]
	}
}

func enginePackedNormGeneric(dst, x, gamma []float32, rows int, eps float32) {
	width := len(gamma)
	for ; rows > 0; rows-- {
		row := x[:width]
		enginePackedNormalizeTail(dst[:width], row, gamma, 0, engineInvStd(0, row, width, eps))
		dst, x = dst[width:], x[width:]
	}
}

// engineLaneSum adds the lanes one by one.
func engineLaneSum(lanes *[8]float32) float32 {
	var sum float32
	for _, s := range lanes {
		sum += s
	}
	return sum
}

// engineInvStd is 1/sqrt(mean + eps), for the sum of squares of a row without its last elements.
func engineInvStd(sum float32, rest []float32, width int, eps float32) float32 {
	for _, v := range rest {
		sum += float32(v * v)
	}
	return 1 / float32(math.Sqrt(float64(sum/float32(width)+eps)))
}

// engineNormalizeTail writes the elements of a row from from on. The offset turns -0 into 0.
func engineNormalizeTail(dst, x, gamma []float32, from int, inv float32) {
	gamma, dst = gamma[:len(x)], dst[:len(x)]
	for i := from; i < len(x); i++ {
		dst[i] = float32(float32(x[i]*gamma[i])*inv) + 0
	}
}

// enginePackedNormalizeTail is engineNormalizeTail with the products in the other order.
func enginePackedNormalizeTail(dst, x, gamma []float32, from int, inv float32) {
	gamma, dst = gamma[:len(x)], dst[:len(x)]
	for i := from; i < len(x); i++ {
		dst[i] = float32(float32(x[i]*inv)*gamma[i]) + 0
	}
}
