package kernel

import "math"

// The Arm functions compute float ops with the operations of MNN's arm64 build at `precision: normal`, in MNN's order, as the
// Engine functions do for x86. There every product that is added to something is fused, in the assembly, the intrinsics and by
// the compiler, and vectors have four lanes.

// armExp is e**x for x limited to -88..88, as MNN computes all elements but the last of a softmax: with k the integer nearest
// to x/ln 2 and r = x - k ln 2,
//
//	2^k * ((1 + r²/2 + c4 r⁴) + r (1 + c3 r²))
//
// Emulates expApprox (arm/CommonOptFunctionNeon.cpp).
func armExp(x float32) float32 {
	const (
		ln2    = float32(0.69314718056)
		invLn2 = float32(1.44269504089)
		c3     = float32(0.166665)
		c4     = float32(0.0416624)
	)
	x = min(max(x, -88), 88)
	k := math.Round(float64(float32(x * invLn2)))
	r := fma32(-k, float64(ln2), float64(x))
	r2 := float64(float32(r * r))
	odd := fma32(float64(c3), r2, 1)
	even := fma32(float64(c4), float64(float32(r2*r2)), fma32(0.5, r2, 1))
	return math.Float32frombits(math.Float32bits(float32(fma32(odd, r, even))) + uint32(int32(k))<<23)
}

// ArmSiLU writes x / (1 + exp(-x)) to dst, which may be x itself. It panics unless both have the same length.
//
// Emulates MNNSiLu (CommonOptFunction.cpp) and MNNExp (arm/CommonOptFunctionNeon.cpp).
func ArmSiLU(dst, x []float32) {
	checkTwo("ArmSiLU", dst, x)
	for i, v := range x {
		dst[i] = v / (1 + armExp(-v))
	}
}

// ArmSigmoid writes 1 / (1 + exp(-x)) to dst. It panics unless both have the same length.
//
// Emulates MNNSigmoid (CommonOptFunction.cpp) and MNNExp.
func ArmSigmoid(dst, x []float32) {
	checkTwo("ArmSigmoid", dst, x)
	for i, v := range x {
		dst[i] = 1 / (1 + armExp(-v))
	}
}

// ArmGELU is [EngineGELU] with no step fused. It panics unless both have the same length.
//
// Emulates MNNGelu.S (arm/arm64).
func ArmGELU(dst, x []float32) {
	checkTwo("ArmGELU", dst, x)
	for i, v := range x {
		y := float32(float32(float32(float32(v*v)*v)*geluCubic)+v) * geluRoot
		y = min(max(y, -5), 5)
		y2 := float32(y * y)
		a := float32((y2+378)*y2) + 17325
		a = float32(a*y2) + 135135
		b := float32(y2*28) + 3150
		b = float32(b*y2) + 62370
		b = float32(b*y2) + 135135
		t := max(min(float32(a*y)/b, 1), -1)
		dst[i] = float32((t+1)*v) * .5
	}
}

// ArmRMSNormRows writes x / sqrt(mean(x²) + eps) * gamma to dst, for each row of x [rows, len(gamma)]:
//
//	lane l = x[l]² + x[l+16]² + ...                            over the full groups of sixteen, and likewise
//	lane l = (lane l + lane l+4) + (lane l+8 + lane l+12)      for l < 4; then the squares of the full groups of four
//	sum    = (lane 0 + lane 1) + (lane 2 + lane 3)             then the squares of the last len%4 elements
//	dst    = (x * (1/sqrt(sum/len + eps))) * gamma
//
// packed adds all groups of four to four lanes, which is what the engine does to two or more tokens in the layout NC4HW4. dst may
// be x itself. It panics unless both have that many rows.
//
// Emulates MNNNorm and MNNNormPackedFloat<4> (CommonOptFunction.cpp).
func ArmRMSNormRows(dst, x, gamma []float32, rows int, packed bool, eps float32) {
	norm(func(dst, x, gamma []float32, rows int, eps float32) {
		for width := len(gamma); rows > 0; rows-- {
			row := x[:width]
			inv := 1 / float32(math.Sqrt(float64(armSquares(row, packed)/float32(width)+eps)))
			for i, v := range row {
				dst[i] = float32(float32(v*inv)*gamma[i]) + 0
			}
			dst, x = dst[width:], x[width:]
		}
	}).rows("ArmRMSNormRows", dst, x, gamma, rows, eps)
}

// armSquares is the sum of the squares of x.
func armSquares(x []float32, packed bool) float32 {
	var lanes [16]float64
	square := func(lanes []float64, x []float32) {
		for l := range lanes {
			lanes[l] = fma32(float64(x[l]), float64(x[l]), lanes[l])
		}
	}
	for ; len(x) >= 16 && !packed; x = x[16:] {
		square(lanes[:], x)
	}
	add := func(a, b float64) float64 { return float64(float32(a + b)) }
	for l := range 4 {
		lanes[l] = add(add(lanes[l], lanes[l+4]), add(lanes[l+8], lanes[l+12]))
	}
	for ; len(x) >= 4; x = x[4:] {
		square(lanes[:4], x)
	}
	sum := add(add(lanes[0], lanes[1]), add(lanes[2], lanes[3]))
	for _, v := range x {
		sum = fma32(float64(v), float64(v), sum)
	}
	return float32(sum)
}

// ArmMatMulT writes the products of rows of a [m, k] and b [n, k] to dst, whose rows are ldd apart, as ascending fused sums, and adds
// bias unless that is nil.
//
// Emulates MNNPackedMatMul and MNNPackedMatMulRemain (arm/arm64).
func ArmMatMulT(dst, a, b, bias []float32, m, n, k, ldd int) {
	for i := range m {
		for j := range n {
			sum, row := 0.0, b[j*k:][:k]
			for l, v := range a[i*k:][:k] {
				sum = fma32(float64(v), float64(row[l]), sum)
			}
			dst[i*ldd+j] = float32(sum)
			if bias != nil {
				dst[i*ldd+j] += bias[j]
			}
		}
	}
}

// ArmRotateHeads is [RotateHeads] with the second product of each element fused into the difference or sum.
//
// Emulates MNNRoPEComputeBasic (CommonOptFunction.cpp).
func ArmRotateHeads(dst, x, cos, sin []float32, heads, dim int) {
	cut := len(cos)
	half, full := cut/2, cut/2&^3
	for h := range heads {
		d, x := dst[h*dim:][:dim], x[h*dim:][:dim]
		copy(d[cut:], x[cut:])
		for j := range half {
			a, b := float64(x[j]), float64(x[j+half])
			first := fma32(-b, float64(sin[j]), float64(x[j]*cos[j]))
			if j >= full {
				// The compiler fuses the other product of the last elements, which do not fill a vector.
				first = fma32(a, float64(cos[j]), -float64(x[j+half]*sin[j]))
			}
			second := fma32(a, float64(sin[j+half]), float64(x[j+half]*cos[j+half]))
			d[j], d[j+half] = float32(first), float32(second)
		}
	}
}
