package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// attentionCase is a cache that calls of some numbers of tokens fill.
type attentionCase struct {
	heads, kvHeads, dim int
	calls               []int
	spread              float32 // of the scores
	window              int     // of a mask that is added: a query sees so many positions, -1 for all before it, 0 for no mask
	sinks               bool
}

func (c attentionCase) String() string {
	return fmt.Sprintf("%d-%d-%d/%v/%g/%d/%t", c.heads, c.kvHeads, c.dim, c.calls, c.spread, c.window, c.sinks)
}

// compute returns the outputs of all calls. split cuts a call into ranges of heads and queries.
func (c attentionCase) compute(t *testing.T, split func(n int) []int) []float32 {
	r := rand.New(rand.NewPCG(31, uint64(c.dim)))
	values := func(n int, scale float32) []float32 {
		x := make([]float32, n+1)[1:]
		for i := range x {
			x[i] = float32(r.NormFloat64()) * scale
		}
		return x[:n:n]
	}
	var a EngineAttention
	var all []float32
	cache := NewKVCache(c.kvHeads, c.dim)
	for _, tokens := range c.calls {
		q := values(tokens*c.heads*c.dim, c.spread)
		k, v := values(tokens*c.kvHeads*c.dim, 1), values(tokens*c.kvHeads*c.dim, 1)
		cache.Append(k, v, tokens)
		a.Tokens, a.Heads = tokens, c.heads
		if c.window != 0 {
			// Rows are longer than there are keys, and what a query sees has a bias.
			keys := cache.Len()
			mask, bias := windowMask(tokens, keys, max(0, c.window)), values(tokens*keys, 1)
			a.MaskWidth = keys + 3
			a.Mask = canaries(tokens * a.MaskWidth)[:tokens*a.MaskWidth-3]
			for i, m := range mask {
				a.Mask[i/keys*a.MaskWidth+i%keys] = m + bias[i]
			}
		}
		if c.sinks {
			a.Sinks = values(c.heads, 2)
		}
		out := canaries(len(q) + 9)
		heads, queries := split(c.heads), split(tokens)
		for i := range len(queries) - 1 {
			for h := range len(heads) - 1 {
				a.Attend(out[:len(q):len(q)], q, cache, heads[h], heads[h+1], queries[i], queries[i+1])
			}
		}
		for i, x := range out[len(q):] {
			if x != canary {
				t.Fatalf("%v: element %d past the end was written", c, i)
			}
		}
		all = append(all, out[:len(q)]...)
	}
	return all
}

func whole(n int) []int { return []int{0, n} }

// check compares every tier, whole and in pieces, with the generic code.
func (c attentionCase) check(t *testing.T) {
	t.Helper()
	defer func(old switches) { use = old }(use)
	use = switches{}
	want := c.compute(t, whole)
	for i, x := range want {
		if math.IsInf(float64(x), 0) || x != x || math.Float32bits(x) == 1<<31 {
			t.Fatalf("%v: element %d is %v", c, i, x)
		}
	}
	r := rand.New(rand.NewPCG(33, 34))
	pieces := func(n int) []int {
		cuts := []int{0}
		for at := 0; at < n; cuts = append(cuts, at) {
			at = min(n, at+1+r.IntN(1+n/2))
		}
		return cuts
	}
	for _, tier := range tiers {
		var err error
		if use, err = choose(tier.name, supported()); err != nil {
			continue
		}
		for name, split := range map[string]func(int) []int{"whole": whole, "pieces": pieces} {
			got := c.compute(t, split)
			if i := firstDifference(got, want); i >= 0 {
				t.Fatalf("%v, %s, %s: element %d of %d is %x, want %x", c, tier.name, name, i, len(want), got[i], want[i])
			}
		}
	}
}

func TestEngineAttentionParity(t *testing.T) {
	dims := []int{1, 3, 8, 16, 20, 32, 37, 64, 80, 96, 128, 256}
	if testing.Short() {
		dims = []int{3, 20, 64}
	}
	for _, dim := range dims {
		for i, heads := range [][2]int{{1, 1}, {4, 2}, {3, 1}, {8, 2}, {7, 1}} {
			spread := []float32{.1, 1, 4, 40}[(dim+i)%4]
			attentionCase{heads[0], heads[1], dim, []int{1, 1, 5, 1, 63, 1, 1, 24, 6, 2, 1}, spread, 0, false}.check(t)
		}
	}
	if testing.Short() {
		return
	}
	for tokens := 1; tokens <= 70; tokens++ {
		attentionCase{3, 1, 20, []int{tokens, 1, tokens}, 3, 0, false}.check(t)
		attentionCase{2, 2, 16, []int{1 + tokens*7%61, tokens}, 3, 0, false}.check(t)
	}
	for _, past := range []int{1, 7, 8, 63, 64, 65, 127, 130} {
		for _, tokens := range []int{1, 2, 6, 17, 21, 64, 65, 97, 145} {
			attentionCase{2, 1, 12, []int{past, tokens}, 2, 0, false}.check(t)
		}
	}
	for i, calls := range [][]int{{1, 1, 1}, {5, 1, 70, 1}, {64}, {65, 1}, {63, 1, 1, 62, 2, 21}, {24, 150}, {130, 1}} {
		for _, window := range []int{-1, 1, 20, 90} {
			attentionCase{3, 1, 20, calls, 2, window, false}.check(t)
			attentionCase{4, 2, 16 + 8*i, calls, 2, window, true}.check(t)
		}
		attentionCase{4, 1, 12, calls, 2, 0, true}.check(t)
	}
	for _, spread := range []float32{0, 1e-30, 20, 80, 1e4, 1e18, 1e36} {
		attentionCase{3, 1, 16, []int{70, 1, 1, 9, 1}, spread, 0, false}.check(t)
	}
}

// TestEngineAttentionLimits wants values that are not finite, or overflow, to do no harm.
func TestEngineAttentionLimits(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, x := range []float32{0, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32} {
			for _, tokens := range []int{1, 40} {
				cache := NewKVCache(1, 24)
				k, q, out := make([]float32, 80*24), make([]float32, tokens*2*24), canaries(tokens*2*24+1)
				for i := range k {
					k[i] = x * float32(i%3-1)
				}
				for i := range q {
					q[i] = x
				}
				cache.Append(k, k, 80)
				a := EngineAttention{Tokens: tokens, Heads: 2}
				a.Attend(out, q, cache, 0, 2, 0, tokens) // ends, within bounds
				if out[len(out)-1] != canary {
					t.Errorf("%v: wrote past the end", x)
				}
			}
		}
	})
}

// TestEngineAttentionForgets wants nothing of a failed call or of larger calls to remain.
func TestEngineAttentionForgets(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		nan := make([]float32, 100*2*20)
		for i := range nan {
			nan[i] = float32(math.NaN())
		}
		x := engineValues(1, 30*2*20, 1)
		var a, b EngineAttention
		used, fresh := NewKVCache(2, 20), NewKVCache(2, 20)
		used.Append(nan, nan, 100)
		a.Tokens, a.Heads = 100, 2
		a.Attend(make([]float32, len(nan)), nan, used, 0, 2, 0, 100)
		used.Truncate(0)
		for _, n := range []int{11, 1, 30} {
			got, want := make([]float32, n*40), make([]float32, n*40)
			for _, c := range []struct {
				a     *EngineAttention
				cache *KVCache
				out   []float32
			}{{&a, used, got}, {&b, fresh, want}} {
				c.cache.Append(x, x, n)
				c.a.Tokens, c.a.Heads = n, 2
				c.a.Attend(c.out, x, c.cache, 0, 2, 0, n)
			}
			if i := firstDifference(got, want); i >= 0 {
				t.Fatalf("%d tokens: element %d is %v, want %v", n, i, got[i], want[i])
			}
		}
	})
}

func TestEngineAttentionAllocations(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		cache := NewKVCache(2, 32)
		cache.Reserve(512)
		x := engineValues(1, 20*6*32, 1)
		out := make([]float32, len(x))
		a := EngineAttention{Heads: 6}
		if n := testing.AllocsPerRun(5, func() {
			cache.Truncate(0)
			for _, tokens := range []int{20, 1, 6} {
				cache.Append(x, x, tokens)
				a.Tokens = tokens
				a.Attend(out, x, cache, 0, 6, 0, tokens)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestEngineAttentionPanics(t *testing.T) {
	cache := NewKVCache(2, 4)
	x := make([]float32, 3*4*4)
	cache.Append(x, x, 3)
	for name, f := range map[string]func(){
		"no tokens":        func() { (&EngineAttention{Heads: 4}).Attend(x, x, cache, 0, 4, 0, 0) },
		"tokens":           func() { (&EngineAttention{Tokens: 4, Heads: 4}).Attend(make([]float32, 64), x, cache, 0, 4, 0, 4) },
		"heads":            func() { (&EngineAttention{Tokens: 3, Heads: 3}).Attend(x, x, cache, 0, 3, 0, 3) },
		"no heads":         func() { (&EngineAttention{Tokens: 3}).Attend(x, x, cache, 0, 0, 0, 3) },
		"short out":        func() { (&EngineAttention{Tokens: 3, Heads: 4}).Attend(x[1:], x, cache, 0, 4, 0, 3) },
		"short q":          func() { (&EngineAttention{Tokens: 3, Heads: 4}).Attend(x, x[1:], cache, 0, 4, 0, 3) },
		"range of heads":   func() { (&EngineAttention{Tokens: 3, Heads: 4}).Attend(x, x, cache, 0, 5, 0, 3) },
		"range of queries": func() { (&EngineAttention{Tokens: 3, Heads: 4}).Attend(x, x, cache, 0, 4, 0, 4) },
		"negative":         func() { (&EngineAttention{Tokens: 3, Heads: 4}).Attend(x, x, cache, 0, 4, -1, 3) },
		"cache":            func() { NewKVCache(0, 4) },
		"append":           func() { cache.Append(x[:23], x, 3) },
		"truncate":         func() { cache.Truncate(cache.Len() + 1) },
		"write":            func() { cache.Write(x, x, 3, 0, 3) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestRowWeightsParity takes every number of scores, some beyond what exp reaches.
func TestRowWeightsParity(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		x := engineValues(3, 65*64, 1)
		for n := 1; n <= 64; n++ {
			for _, scale := range []float32{1, 50, 1000} {
				var got, want rowWeights
				got.reset(1)
				want.reset(1)
				for round := range 3 {
					a, b := canaries(64), canaries(64)
					for i := range n {
						a[i] = x[n*64+(i+round*7)%64] * scale
					}
					copy(b, a[:n])
					got.weigh(a, n)
					want.weighGeneric(b, n)
					if i := firstDifference(a, b); i >= 0 {
						t.Fatalf("%d scores: weight %d is %x, want %x", n, i, a[i], b[i])
					}
					for i, pair := range [][2]float32{{got.top[0], want.top[0]}, {got.sum[0], want.sum[0]}, {got.factor[0], want.factor[0]}} {
						if math.Float32bits(pair[0]) != math.Float32bits(pair[1]) {
							t.Fatalf("%d scores: state %d is %x, want %x", n, i, pair[0], pair[1])
						}
					}
				}
			}
		}
	})
}

// BenchmarkEngineAttention is 9 heads on 3 kv heads of 64. Decodes cycle through the caches of 30 layers of 512 positions.
func BenchmarkEngineAttention(b *testing.B) {
	const heads, kvHeads, dim, depth = 9, 3, 64, 512
	x := engineValues(1, depth*heads*dim, 3)
	out := make([]float32, len(x))
	for _, tier := range tiers {
		for _, tokens := range []int{512, 16} {
			b.Run(fmt.Sprintf("prefill-%d/%s", tokens, tier.name), func(b *testing.B) {
				withTier(b, tier.name, func() {
					cache := NewKVCache(kvHeads, dim)
					cache.Append(x, x, depth)
					a := EngineAttention{Tokens: tokens, Heads: heads}
					for b.Loop() {
						a.Attend(out, x, cache, 0, heads, 0, tokens)
					}
					pairs := 0
					for t := range tokens {
						pairs += depth - t
					}
					b.ReportMetric(4*dim*heads*float64(pairs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			})
		}
		b.Run("append/"+tier.name, func(b *testing.B) {
			withTier(b, tier.name, func() {
				cache := NewKVCache(kvHeads, dim)
				for b.Loop() {
					cache.Truncate(0)
					cache.Append(x, x, depth)
				}
			})
		})
		for _, layers := range []int{1, 10, 30} {
			b.Run(fmt.Sprintf("decode-layers-%d/%s", layers, tier.name), func(b *testing.B) {
				withTier(b, tier.name, func() {
					var caches []*KVCache
					for range layers {
						cache := NewKVCache(kvHeads, dim)
						cache.Append(x, x, depth)
						caches = append(caches, cache)
					}
					a := EngineAttention{Tokens: 1, Heads: heads}
					for b.Loop() {
						for _, cache := range caches {
							a.Attend(out, x, cache, 0, heads, 0, 1)
						}
					}
					bytes := float64(b.N) * float64(layers) * 2 * 4 * kvHeads * dim * depth
					b.ReportMetric(bytes/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			})
		}
	}
}
