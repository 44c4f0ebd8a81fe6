package kernel

import (
	"fmt"
	"math"
)

// EngineRMSNorm writes x / sqrt(mean(x²) + eps) * gamma to dst, for one row, in float32:
//
//	lane l = x[l]² + x[l+8]² + ...                over the full groups of eight
//	sum    = lane 0 + ... + lane 7, then the squares of the last len%8 elements
//	inv    = 1 / sqrt(sum/len + eps)
//	dst    = (x*gamma) * inv
//
// dst may be x itself. It panics unless the three have the same length.
//
// Emulates _AVX_MNNNorm (avx/MathFunctions.cpp), which CPULayerNorm and CPURoPE call for rows that lie in one piece and
// for a single token in the packed layout.
func EngineRMSNorm(dst, x, gamma []float32, eps float32) {
	checkNormLengths(dst, x, gamma)
	var lanes [8]float32
	rest := x
	for len(rest) >= 8 {
		v := (*[8]float32)(rest)
		for l := range lanes {
			lanes[l] += float32(v[l] * v[l])
		}
		rest = rest[8:]
	}
	var sum float32
	for _, s := range lanes {
		sum += s
	}
	for _, v := range rest {
		sum += float32(v * v)
	}
	inv := engineInvStd(sum, len(x), eps)
	for i, v := range x {
		dst[i] = float32(float32(v*gamma[i])*inv) + 0 // the offset: it turns -0 into 0
	}
}

// EngineRMSNormPacked is EngineRMSNorm for two or more tokens in the layout NC4HW4: squares are added one by one, and
// the result is (x*inv) * gamma.
//
// Emulates _MNNNormPacked_Float (x86_x64/AVX2Functions.cpp), which MNN has since 3.6.1.
func EngineRMSNormPacked(dst, x, gamma []float32, eps float32) {
	checkNormLengths(dst, x, gamma)
	var sum float32
	for _, v := range x {
		sum += float32(v * v)
	}
	inv := engineInvStd(sum, len(x), eps)
	for i, v := range x {
		dst[i] = float32(float32(v*inv)*gamma[i]) + 0
	}
}

func engineInvStd(sum float32, n int, eps float32) float32 {
	return 1 / float32(math.Sqrt(float64(sum/float32(max(n, 1))+eps)))
}

func checkNormLengths(dst, x, gamma []float32) {
	if len(x) != len(dst) || len(gamma) != len(dst) {
		panic(fmt.Sprintf("internal error: RMSNorm: lengths %d, %d, %d", len(dst), len(x), len(gamma)))
	}
}
