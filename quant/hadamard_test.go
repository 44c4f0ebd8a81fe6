package quant

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// rows of the matrix, made by applying it to unit vectors.
func rowsOfHadamard(h *Hadamard) [][]float64 {
	rows := make([][]float64, h.Channels())
	for i := range rows {
		rows[i] = make([]float64, h.Channels())
		rows[i][i] = 1
		h.Apply(rows[i])
	}
	return rows
}

// The block is a Hadamard matrix over its root: orthogonal, all elements of one magnitude.
func TestHadamardIsOrthogonal(t *testing.T) {
	for _, c := range []struct{ n, block int }{
		{1, 1}, {2, 2}, {4, 4}, {64, 64}, {12, 12}, {20, 20}, {24, 24}, {28, 28}, {36, 36}, {44, 44}, {60, 60}, {76, 76}, {80, 80}, {96, 96},
		{112, 112}, {160, 160}, {896, 896}, // 2^5 * 28
		{3, 1}, {6, 2}, {52, 4}, {92, 4}, {104, 104}, {100, 4}, // 99 and 49 are no primes
	} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			h := NewHadamard(c.n, 1)
			if h.Block() != c.block || h.Channels() != c.n {
				t.Fatalf("order %d in blocks of %d, want %d", h.Channels(), h.Block(), c.block)
			}
			rows := rowsOfHadamard(h)
			for i, a := range rows {
				for j, v := range a {
					want := 0.0
					if i/c.block == j/c.block {
						want = 1 / math.Sqrt(float64(c.block))
					}
					if math.Abs(math.Abs(v)-want) > 1e-12 {
						t.Fatalf("element %d %d is %g", i, j, v)
					}
				}
				if c.n > 200 && i > 3 {
					continue
				}
				for j, b := range rows {
					var sum float64
					for k := range a {
						sum += a[k] * b[k]
					}
					if i == j {
						sum--
					}
					if math.Abs(sum) > 1e-12 {
						t.Fatalf("rows %d and %d: product off by %g", i, j, sum)
					}
				}
			}
		})
	}
}

// Orders of hidden sizes and heads of models that people have; none falls apart.
func TestHadamardOfKnownSizes(t *testing.T) {
	for _, n := range []int{64, 80, 96, 128, 576, 768, 896, 960, 1024, 1152, 1536, 2048, 2304, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192} {
		if b := NewHadamard(n, 1).Block(); b != n {
			t.Errorf("%d falls apart into blocks of %d", n, b)
		}
	}
}

func TestHadamardRuns(t *testing.T) {
	h := NewHadamard(20, 3)
	x := noise(1).floats(60)
	want := slices.Clone(x)
	for lo := 0; lo < 60; lo += 20 {
		h.Apply(want[lo : lo+20])
	}
	h.Apply(x)
	if !slices.Equal(x, want) {
		t.Error("runs are not turned one by one")
	}
	other := noise(1).floats(20)
	NewHadamard(20, 4).Apply(other)
	if slices.Equal(other, want[:20]) {
		t.Error("another seed, the same signs")
	}
	defer func() {
		if recover() == nil {
			t.Error("21 elements accepted")
		}
	}()
	h.Apply(make([]float64, 21))
}

func (n noise) floats(k int) []float64 {
	x := make([]float64, k)
	for i := range x {
		x[i] = float64(n.next())
	}
	return x
}
