package forward

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// attendBound is what float32 loses in scores and sums of values around 1.
const attendBound = 2e-5

// Attention by its formula, in float64 and key by key.
func TestAttend(t *testing.T) {
	const tokens, count, shared, dim = 150, 4, 2, 6
	r := rand.New(rand.NewPCG(3, 4))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	q, k := draw(tokens*count*dim), draw(tokens*count/shared*dim)
	q2, k2 := draw(tokens*count*3), draw(tokens*3)
	v, wide := draw(tokens*count/shared*dim), draw(tokens*count/shared*9)
	sinks := []float32{-2, 0, 1, 30}
	for _, c := range []struct {
		name          string
		h             heads
		window, chunk int
	}{
		{"all", heads{}, 0, 0},
		{"window 1", heads{}, 1, 0},
		{"window 2", heads{}, 2, 0},
		{"window 32", heads{}, 32, 0},
		{"window 64", heads{}, 64, 0},
		{"window 65", heads{}, 65, 0},
		{"window of everything", heads{}, tokens, 0},
		{"window beyond", heads{}, tokens + 1, 0},
		{"chunk 1", heads{}, 0, 1},
		{"chunk 7", heads{}, 0, 7},
		{"chunk 64", heads{}, 0, 64},
		{"chunk 100", heads{}, 0, 100},
		{"window and chunk", heads{}, 20, 33},
		{"sinks", heads{sinks: sinks}, 0, 0},
		{"sinks and window", heads{sinks: sinks}, 1, 0},
		{"sinks and chunk", heads{sinks: sinks}, 0, 16},
		{"slopes", heads{slopes: []float64{1, .5, .25, -.1}}, 0, 0},
		{"cap", heads{cap: 1.5}, 0, 0},
		{"all of them", heads{cap: 1.5, slopes: []float64{1, .5, .25, -.1}, sinks: sinks}, 40, 70},
		{"two parts", heads{parts: []part{{q, k, dim, false}, {q2, k2, 3, true}}}, 50, 0},
		{"other values", heads{v: wide, valueDim: 9}, 0, 0},
		{"in both directions", heads{mask: func(_, tokens int) (int, int) { return 0, tokens }, sinks: sinks}, 0, 0},
		{"in both directions within 30 positions", heads{mask: func(query, tokens int) (int, int) {
			return query / 30 * 30, min(query/30*30+30, tokens)
		}}, 0, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, backwards := c.h, c.h.mask != nil
			if !backwards {
				h.mask = causal(c.window, c.chunk)
			}
			h.count, h.shared, h.scale = count, shared, .4
			if h.parts == nil {
				h.parts = []part{{slices.Clone(q), k, dim, false}}
			}
			if h.v == nil { // in place, as attention does it
				h.v, h.valueDim, h.out = v, dim, h.parts[0].q
			} else {
				h.out = make([]float32, tokens*count*h.valueDim)
			}
			parts := []part{{q, k, dim, false}}
			if len(h.parts) > 1 {
				h.out = make([]float32, tokens*count*dim)
				parts = h.parts
			}
			// The windows are of 0, 150-9 and 9 tokens.
			starts, lengths := []int{0, 0, 141}, []int{0, 141, 9}
			m := &Model{threads: 2}
			m.buffers.New = func() any { return new(buffer) }
			check(t, (&space{Model: m, group: group{starts: starts, lengths: lengths}}).attend(t.Context(), nil, &h))
			for w := range starts {
				for i := range lengths[w] {
					for head := range count {
						var weights []float64
						sum, first := 0.0, -1
						for j := range lengths[w] {
							if !backwards && j > i || c.window > 0 && j <= i-c.window || c.chunk > 0 && j/c.chunk != i/c.chunk {
								continue
							}
							if first < 0 {
								first = j
							}
							score := 0.0
							for _, p := range parts {
								kv, of := head/shared, count/shared
								if p.one {
									kv, of = 0, 1
								}
								for d := range p.dim {
									score += .4 * float64(p.q[((starts[w]+i)*count+head)*p.dim+d]) * float64(p.k[((starts[w]+j)*of+kv)*p.dim+d])
								}
							}
							if h.cap != 0 {
								score = h.cap * math.Tanh(score/h.cap)
							}
							if h.slopes != nil {
								score += h.slopes[head] * float64(j-i)
							}
							weights = append(weights, math.Exp(score))
							sum += math.Exp(score)
						}
						if h.sinks != nil {
							sum += math.Exp(float64(sinks[head]))
						}
						for d := range h.valueDim {
							want := 0.0
							for j, weight := range weights {
								want += weight / sum * float64(h.v[((starts[w]+first+j)*count/shared+head/shared)*h.valueDim+d])
							}
							got := float64(h.out[((starts[w]+i)*count+head)*h.valueDim+d])
							if !(math.Abs(got-want) <= attendBound) {
								t.Fatalf("window %d, position %d, head %d, element %d: %v, want %v", w, i, head, d, got, want)
							}
						}
					}
				}
			}
		})
	}
}
