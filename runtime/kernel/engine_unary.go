package kernel

import (
	"fmt"
	"math"
)

// The functions of this file write f(x) to dst for every element of x, in float32 with the bits of MNN's elementwise
// ops (UnaryOp, ReLU). dst may be x itself. They panic unless both have the same length. Those that need exp compute it for
// groups of eight elements and for the last len%8 in two ways, see [EngineSiLU]: pieces of a tensor must start at
// multiples of eight. Zeros are positive.

// EngineExp writes exp(x), with x limited to -87..87.
//
// Emulates MNNExp (CommonOptFunction.cpp).
func EngineExp(dst, x []float32) {
	checkTwo("EngineExp", dst, x)
	expScaled(dst, x, 1)
}

// EngineExpm1 writes exp(x) - 1: the difference is rounded again, so results near 0 have few digits. The engine fuses it,
// with the same bits, because one factor of the product is a power of two.
//
// Emulates _EXPM1 (CPUUnary.cpp).
func EngineExpm1(dst, x []float32) {
	checkTwo("EngineExpm1", dst, x)
	expScaled(dst, x, 1)
	for i, e := range dst {
		dst[i] = e - 1
	}
}

// EngineSigmoid writes 1 / (1 + exp(-x)).
//
// Emulates MNNSigmoid (CommonOptFunction.cpp).
func EngineSigmoid(dst, x []float32) {
	checkTwo("EngineSigmoid", dst, x)
	expScaled(dst, x, -1)
	for i, e := range dst {
		dst[i] = 1 / (1 + e)
	}
}

// EngineTanh writes (1 - e) / (1 + e), where e = exp(-2x).
//
// Emulates MNNTanh (CommonOptFunction.cpp).
func EngineTanh(dst, x []float32) {
	checkTwo("EngineTanh", dst, x)
	expScaled(dst, x, -2)
	for i, e := range dst {
		dst[i] = (1 - e) / (1 + e)
	}
}

// expScaled writes the engine's exp of x*factor, where factor is a power of two or its negative.
func expScaled(dst, x []float32, factor float32) {
	full := len(x) &^ 7
	for i, v := range x[full:] {
		dst[full+i] = engineExpTail(v * factor)
	}
	if factor != 1 {
		scale(dst[:full], x[:full], factor)
		x = dst
	}
	engineExps(dst[:full], x[:full])
}

// EngineGELU writes x * (1 + tanh(y)) / 2, where y = sqrt(2/pi) * (x + 0.044715 x³) is limited to -5..5 and tanh is
//
//	y (y⁶ + 378 y⁴ + 17325 y² + 135135) / (28 y⁶ + 3150 y⁴ + 62370 y² + 135135)
//
// limited to -1..1. All sums of products are fused.
//
// Emulates _AVX_MNNGeluFMA (avxfma/MathFunctions.cpp).
func EngineGELU(dst, x []float32) {
	checkTwo("EngineGELU", dst, x)
	engineGELU(dst, x)
}

func engineGELUGeneric(dst, x []float32) {
	for i, v := range x {
		y := float32(float32(v*v) * v)
		y = float32(fma32(float64(y), float64(geluCubic), float64(v))) * geluRoot
		y = min(max(y, -5), 5)
		y2 := float64(float32(y * y))
		w := fma32(float64(float32(y2)+378), y2, 17325)
		w = float64(float32(fma32(w, y2, 135135)) * y)
		z := fma32(y2, 28, 3150)
		z = fma32(z, y2, 62370)
		z = fma32(z, y2, 135135)
		t := min(max(float32(w)/float32(z), -1), 1)
		dst[i] = float32(float32(t+1)*v) * .5
	}
}

// Constants of MNNGeluCommon.
const (
	geluCubic = float32(0.044715)
	geluRoot  = float32(0.79788458)
)

// EngineGELUErf writes (erf(x*0.7071067932881648) + 1) * x / 2, computed in float64 and rounded once.
//
// Emulates MNNGeluStandardCommon (CommonOptFunction.cpp).
func EngineGELUErf(dst, x []float32) {
	checkTwo("EngineGELUErf", dst, x)
	for i, v := range x {
		w := float64(v)
		dst[i] = float32(float64(float64(erf(float64(w*0.7071067932881648))+1)*w) * .5)
	}
}

// EngineLog writes the natural logarithm.
//
// Emulates UnaryLog (UnaryUtils.hpp), which calls logf of the C library.
func EngineLog(dst, x []float32) {
	checkTwo("EngineLog", dst, x)
	for i, v := range x {
		dst[i] = logf(v)
	}
}

// EngineSqrt writes the square root, rounded correctly.
func EngineSqrt(dst, x []float32) {
	checkTwo("EngineSqrt", dst, x)
	for i, v := range x {
		dst[i] = float32(math.Sqrt(float64(v)))
	}
}

// EngineReLU writes x where it is positive, and x*slope elsewhere. A slope of -1 gives the magnitude.
//
// Emulates _AVX_MNNReluWithSlopeChannel (avx/PackedFunction.cpp).
func EngineReLU(dst, x []float32, slope float32) {
	checkTwo("EngineReLU", dst, x)
	for i, v := range x {
		if v < 0 {
			v *= slope
		}
		dst[i] = v + 0
	}
}

// EngineAbs writes the magnitude.
//
// Emulates _ABS (CPUUnary.cpp).
func EngineAbs(dst, x []float32) {
	checkTwo("EngineAbs", dst, x)
	for i, v := range x {
		dst[i] = math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
	}
}

func checkTwo(name string, dst, x []float32) {
	if len(dst) != len(x) {
		panic(fmt.Sprintf("internal error: kernel.%s: lengths %d, %d", name, len(dst), len(x)))
	}
}
