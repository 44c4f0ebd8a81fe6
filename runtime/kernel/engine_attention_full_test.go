package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// fullShapes are batch, queries, keys, heads, dim and valueDim.
var fullShapes = [][6]int{
	{1, 2, 2, 1, 1, 2}, {1, 3, 5, 2, 3, 4}, {1, 24, 64, 2, 16, 16}, {1, 25, 67, 3, 20, 12}, {2, 33, 40, 2, 64, 64}, {1, 46, 17, 1, 8, 40},
	{2, 70, 71, 2, 72, 72}, {1, 6, 300, 1, 260, 24}, {1, 101, 9, 2, 33, 17},
}

// fullByOps is what the three ops make of heads that permutes have put apart.
func fullByOps(q, k, v []float32, s [6]int) []float32 {
	batch, queries, keys, heads, dim, valueDim := s[0], s[1], s[2], s[3], s[4], s[5]
	apart := func(x []float32, i, rows, width int) []float32 {
		var out []float32
		for r := range rows {
			out = append(out, x[((i/heads*rows+r)*heads+i%heads)*width:][:width]...)
		}
		return out
	}
	out := make([]float32, batch*queries*heads*valueDim)
	scores, mixed := make([]float32, queries*keys), make([]float32, queries*valueDim)
	for i := range batch * heads {
		EngineMatMul(scores, apart(q, i, queries, dim), apart(k, i, keys, dim), queries, dim, keys, false, true)
		EngineSoftmaxRows(scores, scores, keys)
		EngineMatMul(mixed, scores, apart(v, i, keys, valueDim), queries, keys, valueDim, false, false)
		for r := range queries {
			copy(out[((i/heads*queries+r)*heads+i%heads)*valueDim:], mixed[r*valueDim:][:valueDim])
		}
	}
	return out
}

// TestEngineFullAttention: the bits of the ops, for ranges of queries of any size, with infinite scores and with such that are none.
func TestEngineFullAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, s := range fullShapes {
		for _, odd := range [][]float32{nil, {1e4, -3e4}, {inf}, {-inf}, {nan, inf, -inf}} {
			q, k, v := random(r, s[0]*s[1]*s[3]*s[4]), random(r, s[0]*s[2]*s[3]*s[4]), random(r, s[0]*s[2]*s[3]*s[5])
			for _, x := range odd {
				q[r.IntN(len(q))], k[r.IntN(len(k))] = x, x
			}
			want := fullByOps(q, k, v, s)
			forEachImpl(t, func(t *testing.T) {
				var a EngineFullAttention
				for _, step := range []int{s[1], FullAttentionRows, 7} {
					out := make([]float32, len(want))
					a.Reset(s[0], s[1], s[2], s[3], s[4], s[5])
					for i := range a.keyTiles {
						a.keyTiles[i] = nan
					}
					for i := range a.valueTiles {
						a.valueTiles[i] = nan
					}
					a.Pack(k, v, 0, s[0]*s[3])
					for head := range s[0] * s[3] {
						for from := 0; from < s[1]; from += step {
							a.Attend(out, q, head, from, min(from+step, s[1]))
						}
					}
					if i := firstDifference(out, want); i >= 0 {
						t.Fatalf("%v with %v, %d queries at a time: element %d is %v, want %v", s, odd, step, i, out[i], want[i])
					}
				}
			})
		}
	}
}

func TestEngineFullAttentionRefuses(t *testing.T) {
	var a EngineFullAttention
	for _, s := range [][6]int{{0, 2, 2, 1, 1, 2}, {1, 1, 2, 1, 1, 2}, {1, 2, 1, 1, 1, 2}, {1, 2, 2, 0, 1, 2}, {1, 2, 2, 1, 0, 2}, {1, 2, 2, 1, 1, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v: no panic", s)
				}
			}()
			a.Reset(s[0], s[1], s[2], s[3], s[4], s[5])
		}()
	}
}

func BenchmarkEngineFullAttention(b *testing.B) {
	const rows, heads, dim = 784, 12, 64
	r := rand.New(rand.NewPCG(1, 2))
	q, k, v, out := random(r, rows*heads*dim), random(r, rows*heads*dim), random(r, rows*heads*dim), make([]float32, rows*heads*dim)
	var a EngineFullAttention
	b.Run(fmt.Sprintf("%dx%dx%d", rows, heads, dim), func(b *testing.B) {
		for b.Loop() {
			a.Reset(1, rows, rows, heads, dim, dim)
			a.Pack(k, v, 0, heads)
			for head := range heads {
				a.Attend(out, q, head, 0, rows)
			}
		}
		b.ReportMetric(float64(b.N)*4*rows*rows*heads*dim/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	})
}
