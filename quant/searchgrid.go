package quant

import (
	"math"
	"math/bits"
	"sync"

	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

const (
	// searchRounds is how often scale and zero term of a candidate are fitted to their codes.
	searchRounds = 2
	// polishRounds is how often grids next to the best one are tried, polishLanes at a time; the best itself is one
	// more lane.
	polishRounds = 2
	polishLanes  = 31
	// polishSpan is the distance of two of them: a share of the distance of the block's ends, in steps of the grid.
	polishSpan = 0.064
	// widening is how much more than for a block of 8 the last candidate clips for each doubling of the length, as a
	// share of the remaining range: the longer a block, the longer the tails that are not worth codes.
	widening = 0.1
	// longBlock is the longest block whose third anchor is the middle of its ends; the ends of longer ones are
	// outliers, so the mean is the anchor.
	longBlock = 128
	// leastFit and mostFit bound the normalised scale that a fit may give: less is noise, and a step as wide as the
	// block is useless and costs errors the precision of float32.
	leastFit, mostFit = 0x1p-40, 1
	// leastSpan is the least distance of a block's ends that is worth a search: smaller ones lie below all
	// scales.
	leastSpan = 0x1p-100
)

// searchGrids chooses scale and zero term, rounded to the spec's type, for the len(scale) blocks of w, which have
// len(w)/len(scale) weights each: those that leave the least sum of importance times squared error. w must be finite,
// importance [len(w)] finite and not negative; a block without any importance counts all its weights alike. zero
// [len(scale)] is 0 for symmetric specs. The result is never worse than that of RTN, except for the rounding of
// float32. Where RTN has no grid of the spec's type, scale or zero is not finite.
//
// It is the search of llama.cpp (make_qkx3_quants in ggml-quants.c), with three anchors for the minimum instead of one,
// errors that count the rounding of scale and zero term to their type, and a second search around the best grid. The
// candidates of the scale are range/d with d from levels-0.9 to levels+1.1 and, less densely, up to 1.4*levels+1.1 for a
// block of 64 and more for longer ones; the minimum starts at the low end, at the high end, or so that both ends lose
// equally (in long blocks: around the mean); symmetric grids start with both signs. From each start, scale and zero term
// are fitted twice to their codes by weighted least squares.
func searchGrids(scale, zero, w, importance []float32, s Spec, candidates int) {
	g := gridSearches.Get().(*gridSearch)
	g.search(scale, zero, w, importance, s, candidates)
	gridSearches.Put(g)
}

var gridSearches = sync.Pool{New: func() any { return new(gridSearch) }}

// gridSearch is the scratch memory of a search. A lane is a candidate grid. All numbers but the stored ones are
// normalised: weights have their block's centre subtracted (0 if symmetric) and are multiplied by a power of two that
// brings them below 1, the largest importance is 1.
type gridSearch struct {
	spec        Spec
	levels, mid float64 // largest code, and the code of the zero term
	start       grid

	x, importance []float32
	centre        float64
	unit          float64 // a normalised 1 in weights
	span          float64 // the distance of the block's ends; before normalise, in weights
	sumX, sum     float64 // of importance*x and of importance

	scales, zeros                []float64 // of lanes
	storedScale, storedZero      []float32 // rounded to their type, in weights
	laneScale, laneZero, inverse []float32 // for the kernels
	sums, errors                 []float64
	halves                       []byte

	bestScale, bestZero float32 // stored
}

func (g *gridSearch) search(scale, zero, w, importance []float32, s Spec, candidates int) {
	g.spec = s
	g.levels, g.mid = float64(int(1)<<s.Bits-1), float64(int(1)<<(s.Bits-1))
	n := len(w) / len(scale)
	for len(scale) > 0 {
		blocks := min(len(scale), groupBlocks)
		lo, hi := g.start.lo[:blocks], g.start.hi[:blocks]
		kernel.BlockExtremes(lo, hi, w[:blocks*n])
		if s.Symmetric {
			clear(zero[:blocks])
			g.start.symmetric(scale[:blocks], s)
		} else {
			g.start.asymmetric(scale[:blocks], zero[:blocks], s)
		}
		for b := range blocks {
			g.bestScale, g.bestZero = scale[b], zero[b]
			g.measure(float64(lo[b]), float64(hi[b]))
			if !isFinite(g.bestScale) || !isFinite(g.bestZero) || g.span < leastSpan {
				continue
			}
			g.normalise(w[b*n:(b+1)*n], importance[b*n:(b+1)*n])
			lanes := g.propose(candidates)
			for range searchRounds {
				g.fit(lanes)
			}
			g.keep(lanes)
			for range polishRounds {
				g.surround()
				g.fit(polishLanes)
				g.keep(polishLanes)
			}
			scale[b], zero[b] = g.bestScale, g.bestZero
		}
		scale, zero, w, importance = scale[blocks:], zero[blocks:], w[blocks*n:], importance[blocks*n:]
	}
}

// measure computes the extremes of a block.
func (g *gridSearch) measure(lo, hi float64) {
	g.centre, g.span = (lo+hi)/2, hi-lo
	if g.spec.Symmetric {
		g.centre, g.span = 0, 2*max(-lo, hi)
	}
}

// normalise loads and normalises the weights of a block.
func (g *gridSearch) normalise(w, importance []float32) {
	_, e := math.Frexp(g.span)
	g.unit = math.Ldexp(1, e)
	shrink := math.Ldexp(1, -e)
	g.span *= shrink
	var top float32
	for _, v := range importance {
		top = max(top, v)
	}
	per := 1 / float64(top)
	x, p := resize(&g.x, len(w)), resize(&g.importance, len(w))
	var sumX, sum float64
	for i, v := range w {
		x[i] = float32((float64(v) - g.centre) * shrink)
		p[i] = 1
		if top > 0 {
			p[i] = float32(float64(importance[i]) * per)
		}
		sumX += float64(float64(p[i]) * float64(x[i]))
		sum += float64(p[i])
	}
	g.sumX, g.sum = sumX, sum
}

// resize allocates room for n values.
func resize[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return *s
}

// grow allocates lanes, and returns their scales and zero terms.
func (g *gridSearch) grow(lanes int) (scales, zeros []float64) {
	for _, p := range []*[]float32{&g.storedScale, &g.storedZero, &g.laneScale, &g.laneZero, &g.inverse} {
		resize(p, lanes)
	}
	resize(&g.sums, 3*lanes)
	resize(&g.errors, lanes)
	resize(&g.halves, 2*lanes)
	return resize(&g.scales, lanes), resize(&g.zeros, lanes)
}

// propose fills lanes with the starting grids of the search, and returns their number.
func (g *gridSearch) propose(candidates int) int {
	lanes := 3 * candidates
	if g.spec.Symmetric {
		lanes = 2 * candidates
	}
	scales, zeros := g.grow(max(lanes, polishLanes) + 1) // one for the best so far
	widest := float64(widening*g.levels) * float64(bits.Len(uint(len(g.x)))-3)
	centre := 0.0 // that of the third anchor
	if len(g.x) > longBlock {
		centre = g.sumX / g.sum
	}
	for t := range candidates {
		u := float64(t) / float64(candidates)
		s := g.span / (g.levels - 0.9 + float64(2*u) + float64(widest*float64(u*u*u)))
		if g.spec.Symmetric {
			scales[2*t], scales[2*t+1] = s, -s
			zeros[2*t], zeros[2*t+1] = 0, 0
			continue
		}
		scales[3*t], scales[3*t+1], scales[3*t+2] = s, s, s
		zero, width, half := float64(s*g.mid), float64(s*g.levels), float64(g.span/2)
		zeros[3*t], zeros[3*t+1], zeros[3*t+2] = zero-half, zero+half-width, zero-float64(width/2)+centre
	}
	return lanes
}

// surround fills lanes with grids around the best one.
func (g *gridSearch) surround() {
	best := float64(g.bestScale) / g.unit
	zero := (float64(g.bestZero) - g.centre) / g.unit
	for i := range polishLanes {
		g.scales[i] = best * (1 + float64(i-polishLanes/2)*polishSpan/g.levels)
		g.zeros[i] = zero
	}
}

// fit moves scale and zero term of each lane to the weighted least squares for their codes. A lane whose codes
// determine no positive scale (symmetric: no scale) keeps it.
func (g *gridSearch) fit(lanes int) {
	scales, zeros := g.scales[:lanes], g.zeros[:lanes]
	z, inverse := g.laneZero[:lanes], g.inverse[:lanes]
	for i, s := range scales {
		z[i], inverse[i] = float32(zeros[i]), float32(1/s)
	}
	g.sums = g.sums[:3*lanes]
	kernel.GridSums(g.sums, g.x, g.importance, z, inverse, g.spec.Bits)
	codes, squares, products := g.sums[:lanes], g.sums[lanes:2*lanes], g.sums[2*lanes:3*lanes]
	if g.spec.Symmetric {
		for i := range scales {
			if s := products[i] / squares[i]; math.Abs(s) > leastFit && math.Abs(s) < mostFit {
				scales[i] = s
			}
		}
		return
	}
	per := 1 / g.sum
	for i, c := range codes {
		den := float64(g.sum*squares[i]) - float64(c*c)
		num := float64(g.sum*products[i]) - float64(c*g.sumX)
		if s := num / den; den > 0 && s > leastFit && s < mostFit {
			scales[i] = s
		}
		zeros[i] = (g.sumX - float64(scales[i]*c)) * per
	}
}

// keep rounds the lanes to their stored type, and keeps the one with the least error if it beats the best so far. Zero
// terms are chosen for the rounded scales.
func (g *gridSearch) keep(lanes int) {
	stored, storedZero := g.storedScale[:lanes+1], g.storedZero[:lanes+1]
	for i, s := range g.scales[:lanes] {
		stored[i] = float32(s * g.unit)
	}
	stored[lanes], storedZero[lanes] = g.bestScale, g.bestZero
	g.round(stored)
	perUnit := 1 / g.unit
	if !g.spec.Symmetric {
		codes, per := g.sums[:lanes], g.unit/g.sum
		for i, c := range codes {
			s := float64(stored[i]) * perUnit
			storedZero[i] = float32(float64((g.sumX-float64(s*c))*per) + g.centre)
		}
		g.round(storedZero)
	} else {
		clear(storedZero)
	}
	scale, zero, inverse := g.laneScale[:lanes+1], g.laneZero[:lanes+1], g.inverse[:lanes+1]
	for i, s := range stored {
		if !g.spec.storable(s, storedZero[i], g.unit+math.Abs(float64(storedZero[i])-g.centre)) {
			s = g.bestScale
			stored[i], storedZero[i] = g.bestScale, g.bestZero
		}
		scale[i] = float32(float64(s) * perUnit)
		zero[i] = float32((float64(storedZero[i]) - g.centre) * perUnit)
		inverse[i] = 1 / scale[i]
	}
	kernel.GridErrors(g.errors[:lanes+1], g.x, g.importance, zero, scale, inverse, g.spec.Bits)
	best := lanes
	for i, e := range g.errors[:lanes] {
		if e < g.errors[best] {
			best = i
		}
	}
	g.bestScale, g.bestZero = stored[best], storedZero[best]
}

// round rounds to the type of scales.
func (g *gridSearch) round(v []float32) {
	if g.spec.Scale == tensor.F16 {
		b := g.halves[:2*len(v)]
		kernel.F32ToF16(b, v)
		kernel.F16ToF32(v, b)
	}
}
