package kernel

import (
	"fmt"
	"math"
)

// The functions of the half_*.go files compute with values that IEEE half precision holds, kept in float32, and round to half precision
// where MNN on arm64 does at `precision: low`. They are made to be right, not fast.

// HalfRound writes x, each rounded as by [RoundF16], to dst, which may be x. It panics unless both have the same length.
func HalfRound(dst, x []float32) {
	checkTwo("HalfRound", dst, x)
	var b [2 * 256]byte
	for len(x) > 0 {
		n := min(len(x), 256)
		F32ToF16(b[:2*n], x[:n])
		F16ToF32(dst[:n], b[:2*n])
		dst, x = dst[n:], x[n:]
	}
}

// HalfStore is [HalfRound] where the engine converts float32 as a whole: finite values and infinities beyond the range become its ends.
//
// Emulates MNNQuantizeFP16_UNIT4.S.
func HalfStore(dst, x []float32) {
	const most = 65504
	checkTwo("HalfStore", dst, x)
	for i, v := range x {
		dst[i] = min(max(v, -most), most)
	}
	HalfRound(dst, dst)
}

// Bits of float64: the exponent, that of the smallest normal half, and the distance in exponents, with a half, between a value and what has
// to be added to it so that only the eleven digits of a half are left.
const (
	halfExponent = 0x7ff << 52
	halfLowest   = (1023 - 14) << 52
	halfShift    = 42<<52 | 1<<51
	halfHighest  = (1023 + 15) << 52
)

// half64 rounds v once to half precision.
func half64(v float64) float64 {
	if !(math.Abs(v) < 65520) {
		return float64(RoundF16(float32(v))) // infinite, or not a number
	}
	m := math.Float64frombits(max(math.Float64bits(v)&halfExponent, halfLowest) + halfShift)
	return (v + m) - m
}

// halfLanes is the number of sums that halfDots computes together, and halfGroup that of those whose steps are written side by side.
const halfLanes, halfGroup = 32, 4

// halfDotsGeneric writes the sum of products of x with each of 32 rows, which come as w [len(x)][32], to dst: from the first product
// on, each is fused, rounded once with the sum before.
func halfDotsGeneric(dst *[halfLanes]float32, x []float32, w []float64) {
	for r := 0; r < halfLanes; r += halfGroup {
		if !halfDotsOf(dst[r:r+halfGroup], x, w[r:]) {
			halfDotsFar(dst[r:r+halfGroup], x, w[r:])
		}
	}
}

// halfDotsOf computes a group of sums, and reports whether none of them came near the end of the range.
func halfDotsOf(dst, x []float32, w []float64) bool {
	var s0, s1, s2, s3 float64
	var high uint64 // the largest exponent before rounding
	for i, v := range x {
		c := w[halfLanes*i:][:halfGroup:halfGroup]
		f := float64(v)
		// Products of halves are exact.
		s0, s1, s2, s3 = s0+float64(f*c[0]), s1+float64(f*c[1]), s2+float64(f*c[2]), s3+float64(f*c[3])
		e0, e1 := math.Float64bits(s0)&halfExponent, math.Float64bits(s1)&halfExponent
		e2, e3 := math.Float64bits(s2)&halfExponent, math.Float64bits(s3)&halfExponent
		high = max(high, e0, e1, e2, e3)
		m0, m1 := math.Float64frombits(max(e0, halfLowest)+halfShift), math.Float64frombits(max(e1, halfLowest)+halfShift)
		m2, m3 := math.Float64frombits(max(e2, halfLowest)+halfShift), math.Float64frombits(max(e3, halfLowest)+halfShift)
		s0, s1, s2, s3 = (s0+m0)-m0, (s1+m1)-m1, (s2+m2)-m2, (s3+m3)-m3
	}
	dst[0], dst[1], dst[2], dst[3] = float32(s0), float32(s1), float32(s2), float32(s3)
	return high < halfHighest
}

// halfDotsFar computes len(dst) sums that may leave the range.
func halfDotsFar(dst, x []float32, w []float64) {
	for r := range dst {
		var s float64
		for i, v := range x {
			s = half64(s + float64(float64(v)*w[halfLanes*i+r]))
		}
		dst[r] = float32(s)
	}
}

// halfAdd and halfSub write x+y and x-y, rounded, to dst.
func halfAdd(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = RoundF16(v + y[i])
	}
}

func halfSub(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = RoundF16(v - y[i])
	}
}

// HalfMatMul is [EngineMatMul] in half precision, whose order of sums is the same but for lanes: their sums are added one by one in float32.
//
// Emulates CPUMatMul.cpp with MNNPackedMatMulFP16, _MNNComputeMatMulForE_1_FP16 and _MNNComputeMatMulForH_1_FP16 (Arm82Functions.cpp).
func HalfMatMul(dst, a, b []float32, e, l, h int, transposeA, transposeB bool) {
	if e <= 0 || l <= 0 || h <= 0 || len(dst) < e*h || len(a) < e*l || len(b) < l*h {
		panic(fmt.Sprintf("internal error: kernel.HalfMatMul: %d values of %d and %d for %d x %d x %d", len(dst), len(a), len(b), e, l, h))
	}
	if transposeA {
		a = transposed(a, l, e)
	}
	if !transposeB {
		b = transposed(b, l, h)
	}
	if lanes := h == 1 && !transposeA || e == 1 && h > 1 && transposeB; lanes {
		for i := range e {
			for j := range h {
				dst[i*h+j] = halfLaneDot(a[i*l:][:l], b[j*l:][:l])
			}
		}
		return
	}
	halfProduct(halfMatrix{dst, h}, halfMatrix{a, l}, halfMatrix{b, l}, e, l, h)
}

// halfLaneDot is the sum of products in eight lanes.
func halfLaneDot(x, y []float32) float32 {
	var lanes [8]float64
	for i, v := range x {
		lanes[i%8] = half64(lanes[i%8] + float64(float64(v)*float64(y[i])))
	}
	var s float32
	for _, v := range lanes {
		s += float32(v)
	}
	return RoundF16(s)
}

// transposed returns the transpose of x [rows, cols].
func transposed(x []float32, rows, cols int) []float32 {
	t := make([]float32, rows*cols)
	for r := range rows {
		for c := range cols {
			t[c*rows+r] = x[r*cols+c]
		}
	}
	return t
}

// HalfGELU writes x * (1 + tanh(y)) / 2 to dst, as [EngineGELU] does, with every step rounded to half precision.
//
// Emulates MNNGeluFP16.S, which also computes the GELU of erf.
func HalfGELU(dst, x []float32) {
	checkTwo("HalfGELU", dst, x)
	cubic, root := RoundF16(geluCubic), RoundF16(geluRoot)
	r := func(v float32) float32 { return RoundF16(v) }
	for i, v := range x {
		y := r(r(r(r(r(v*v)*v)*cubic)+v) * root)
		y = max(min(y, 5), -5)
		y2 := r(y * y)
		a := r(y2*r(1./64)) + r(378./64)
		a = r(r(a)*y2) + r(17325./64)
		a = r(r(a)*y2) + r(135135./64)
		a = r(r(a) * y)
		b := r(y2*r(28./64)) + r(3150./64)
		b = r(r(b)*y2) + r(62370./64)
		b = r(r(b)*y2) + r(135135./64)
		t := max(min(r(a/r(b)), 1), -1)
		dst[i] = r(r(r(t+1)*v) * .5)
	}
}
