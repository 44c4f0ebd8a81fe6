package kernel

import (
	"math/rand/v2"
	"testing"
)

func TestEngineAttentionBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(23, 24))
		float := func(n int) []float32 { return guarded(t, random(r, n)) }
		for _, dim := range []int{1, 7, 8, 12, 17, 32, 40} {
			for _, heads := range [][2]int{{1, 1}, {3, 1}, {4, 1}, {4, 2}} {
				cache := NewKVCache(heads[1], dim)
				cache.Extend(140)
				for i, b := range cache.blocks {
					cache.blocks[i] = guarded(t, b)
				}
				cache.Truncate(0)
				var a EngineAttention
				for _, tokens := range []int{5, 1, 58, 1, 35, 9, 30, 1} {
					width := tokens * heads[1] * dim
					cache.Append(float(width), float(width), tokens)
					a.Tokens, a.Heads = tokens, heads[0]
					// The scratch of a tier, where there is one, ends at a page as well.
					for range 2 {
						out, q := float(tokens*heads[0]*dim), float(tokens*heads[0]*dim)
						a.Attend(out, q, cache, 0, heads[0], 0, tokens)
						a.scores, a.mixed = guardedCap(t, a.scores), guardedCap(t, a.mixed)
						a.lanes.guard(t)
					}
				}
			}
		}
		for _, n := range []int{1, 7, 8, 9, 31, 32, 63, 64} {
			var w rowWeights
			w.reset(1)
			w.weigh(float(n), n)
		}
	})
}

func TestEngineFullAttentionBounds(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(33, 34))
		float := func(n int) []float32 { return guarded(t, random(r, n)) }
		for _, s := range fullShapes {
			var a EngineFullAttention
			a.Reset(s[0], s[1], s[2], s[3], s[4], s[5])
			a.keyTiles, a.valueTiles = guarded(t, a.keyTiles), guarded(t, a.valueTiles)
			a.Pack(float(s[0]*s[2]*s[3]*s[4]), float(s[0]*s[2]*s[3]*s[5]), 0, s[0]*s[3])
			out, q := float(s[0]*s[1]*s[3]*s[5]), float(s[0]*s[1]*s[3]*s[4])
			for head := range s[0] * s[3] {
				a.Attend(out, q, head, 0, s[1])
			}
		}
		if lanes := tileLanes(); lanes > 0 {
			for _, n := range []int{1, 7, 8, 9, 64, 65} {
				softmaxOfLanes(float(n*lanes), n, lanes)
			}
		}
	})
}

// guardedCap is guarded for a slice that is reused up to its capacity.
func guardedCap(t *testing.T, x []float32) []float32 {
	if len(x) == 0 {
		return x
	}
	return guarded(t, x)
}
