package kernel

import (
	"fmt"
	"math"
)

// HalfAttention is [EngineAttention] in half precision. Queries are scaled by 1/max |q| if that is less than 1, over all queries and heads
// of the call, and rounded; scores are sums in half precision, multiplied in float32 by what is left of the scale, and rounded. Weights of
// groups of eight keys take the exp of halfExp, and the rest expf; they are rounded where they are multiplied with values, and not where
// their sum is taken. Sums over keys are in half precision within a block of 64, and of blocks in float32, rounded after each.
//
// Emulates CPUAttention::onExecute, MNNSoftmaxFp16_Pack8 and MNNFlashAttentionUpdateBlockOutput (Arm82Functions.cpp).
type HalfAttention struct {
	// Tokens and Heads, of queries, and the others are those of [EngineAttention].
	Tokens, Heads int
	Mask          []float32
	MaskWidth     int
	Sinks         []float32
}

// Attend computes heads lo to hi-1; out and q are [Tokens, Heads, dim], and c holds the positions of the queries already. It panics if they
// are shorter.
func (a *HalfAttention) Attend(out, q []float32, c *KVCache, lo, hi int) {
	size := a.Tokens * a.Heads * c.dim
	if a.Tokens <= 0 || a.Tokens > c.len || a.Heads <= 0 || a.Heads%c.kvHeads != 0 || len(out) < size || len(q) < size || lo < 0 || hi > a.Heads ||
		a.Mask != nil && (a.MaskWidth < c.len || len(a.Mask) < (a.Tokens-1)*a.MaskWidth+c.len) || a.Sinks != nil && len(a.Sinks) < a.Heads {
		panic(fmt.Sprintf("internal error: HalfAttention: %d heads of %d, %d to %d, %d queries after %d, %d and %d values",
			a.Heads, c.kvHeads, lo, hi, a.Tokens, c.len, len(out), len(q)))
	}
	// The engine keeps 1/sqrt(dim)/scale in float32, and scale in half precision where it multiplies.
	scale, rest := float32(1), float32(1/math.Sqrt(float64(c.dim)))
	if most := AbsMax(q[:size]); most > 1 {
		scale = 1 / most
		rest /= scale
	}
	scale = RoundF16(scale)
	row := halfRow{
		q: make([]float32, c.dim), scores: make([]float32, engineBlock), values: make([]float32, c.dim), mixed: make([]float32, c.dim), rest: rest,
	}
	for h := lo; h < hi; h++ {
		for t := range a.Tokens {
			at := (t*a.Heads + h) * c.dim
			for d, v := range q[at:][:c.dim] {
				row.q[d] = RoundF16(v * scale)
			}
			a.attend(&row, out[at:][:c.dim], c, h, t)
		}
	}
}

// halfRow is the memory of one query of one head.
type halfRow struct {
	q, scores, values, mixed []float32
	rest                     float32
}

// attend computes query t of head h.
func (a *HalfAttention) attend(row *halfRow, out []float32, c *KVCache, h, t int) {
	seen := c.len - a.Tokens + t + 1
	if a.Mask != nil {
		seen = c.len
	}
	most, sum := float32(-math.MaxFloat32), float32(0)
	if a.Sinks != nil {
		most, sum = a.Sinks[h], 1
	}
	for start := 0; start < seen; start += engineBlock {
		n := min(engineBlock, seen-start)
		keys, values := c.block(h/(a.Heads/c.kvHeads), start/engineBlock)
		s := row.scores[:n]
		for j := range s {
			tile := keys[j/tileColumns*tileColumns*c.dim+j%tileColumns:]
			var dot float64
			for d, v := range row.q {
				dot = half64(dot + float64(float64(v)*float64(tile[d*tileColumns])))
			}
			v := float32(float32(dot) * row.rest) // not fused with the mask
			if a.Mask != nil {
				v += a.Mask[t*a.MaskWidth+start+j]
			}
			s[j] = RoundF16(v)
		}
		before := most
		for _, v := range s {
			most = max(most, v)
		}
		sum = FMA(sum, expf(before-most), halfWeights(s, most))
		for d := range row.values {
			tile := values[d/tileColumns*engineBlock*tileColumns+d%tileColumns:]
			var dot float64
			for j, p := range s {
				dot = half64(dot + float64(float64(p)*float64(tile[j*tileColumns])))
			}
			row.values[d] = float32(dot)
		}
		if start == 0 {
			copy(row.mixed, row.values)
			continue
		}
		factor := float64(expf(before - most))
		for d, v := range row.values {
			row.mixed[d] = RoundF16(float32(fma32(float64(row.mixed[d]), factor, float64(v))))
		}
	}
	inverse := 1 / sum
	for d, v := range row.mixed {
		out[d] = RoundF16(v * inverse)
	}
}

// halfWeights replaces scores by their weights and returns the sum of these.
func halfWeights(s []float32, most float32) float32 {
	var lanes [8]float32
	full := len(s) &^ 7
	for j, v := range s[:full] {
		p := halfExp(v - most)
		lanes[j%8] += p
		s[j] = RoundF16(p)
	}
	var sum float32
	for j, v := range s[full:] {
		p := expf(v - most)
		sum += p
		s[full+j] = RoundF16(p)
	}
	return sum + (((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])))
}

// halfExp is e**x for x limited to -88..88: with k the integer nearest to x/ln 2 and r = x - k ln 2, 2^k times a polynomial of r.
//
// Emulates expApprox (Arm82Functions.cpp).
func halfExp(x float32) float32 {
	const c4, c3 = float32(0.0416624), float32(0.166665)
	x = min(max(x, -88), 88)
	k := math.Round(float64(x * engineInvLn2))
	r := fma32(-k, float64(engineLn2), float64(x))
	r2 := float64(float32(r * r))
	odd := fma32(float64(c3), r2, 1)
	even := fma32(float64(c4), float64(float32(r2*r2)), fma32(0.5, r2, 1))
	return math.Float32frombits(uint32(int32(math.Float32bits(float32(fma32(odd, r, even)))) + int32(k)<<23))
}
