package kernel

import "fmt"

// EngineSumAxis writes the sums over the middle dimension of x [outer, n, inner] to dst [outer, inner], from 0 in ascending
// order. Rows with inner 1 and at least eight elements are summed in eight lanes: with l_i = x[i] + x[i+8] + ... over the
// full groups of eight and s_i = l_i + l_(i+4) it is ((s_0 + s_1) + s_2) + s_3, and then the last elements. It panics if a
// slice is too short.
//
// Emulates SumReduce (CPUReduction.cpp) and MNNAccumulateSequenceNumber (CommonOptFunction.cpp).
func EngineSumAxis(dst, x []float32, outer, n, inner int) {
	checkAxis("EngineSumAxis", dst, x, outer, n, inner)
	for o := range outer {
		row, out := x[o*n*inner:][:n*inner], dst[o*inner:][:inner]
		if inner == 1 {
			out[0] = engineSum(row)
			continue
		}
		clear(out)
		for ; len(row) > 0; row = row[inner:] {
			add(out, out, row[:inner])
		}
	}
}

func engineSum(x []float32) float32 {
	var sum float32
	if len(x) >= 8 {
		var lanes [8]float32
		for ; len(x) >= 8; x = x[8:] {
			for i, v := range x[:8] {
				lanes[i] += v
			}
		}
		for i := range 4 {
			lanes[i] += lanes[i+4]
		}
		sum = lanes[0] + lanes[1] + lanes[2] + lanes[3]
	}
	for _, v := range x {
		sum += v
	}
	return sum
}

// EngineMeanAxis writes the means over the middle dimension of x [outer, n, inner] to dst [outer, inner]: the ascending sum
// divided by n, or where inner is a multiple of four multiplied by 1/n. It panics if a slice is too short or n is 0.
//
// Emulates MeanReduce (CPUReduction.cpp).
func EngineMeanAxis(dst, x []float32, outer, n, inner int) {
	checkAxis("EngineMeanAxis", dst, x, outer, n, inner)
	for o := range outer {
		row, out := x[o*n*inner:][:n*inner], dst[o*inner:][:inner]
		if inner%4 == 0 {
			copy(out, row)
		} else {
			clear(out)
			add(out, out, row[:inner])
		}
		for row = row[inner:]; len(row) > 0; row = row[inner:] {
			add(out, out, row[:inner])
		}
		if inner%4 == 0 {
			scale(out, out, 1/float32(n))
			continue
		}
		for i := range out {
			out[i] /= float32(n)
		}
	}
}

// EngineMaxAxis writes the largest elements along the middle dimension of x [outer, n, inner] to dst [outer, inner]. The
// values must be finite. It panics if a slice is too short or n is 0.
func EngineMaxAxis(dst, x []float32, outer, n, inner int) {
	checkAxis("EngineMaxAxis", dst, x, outer, n, inner)
	for o := range outer {
		row, out := x[o*n*inner:][:n*inner], dst[o*inner:][:inner]
		copy(out, row)
		for row = row[inner:]; len(row) > 0; row = row[inner:] {
			for i := range out {
				out[i] = max(out[i], row[i])
			}
		}
	}
}

func checkAxis(name string, dst, x []float32, outer, n, inner int) {
	if outer < 0 || n < 1 || inner < 1 || len(dst) < outer*inner || len(x) < outer*n*inner {
		panic(fmt.Sprintf("internal error: kernel.%s: %d values to %d, for %d x %d x %d", name, len(x), len(dst), outer, n, inner))
	}
}
