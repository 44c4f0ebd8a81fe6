package cuda

import (
	"slices"
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

const (
	// mostExperts and mostChoices bound the experts that a token chooses from, and how many it takes, or the groups that they are in.
	mostExperts, mostChoices = 512, 32
	// fewRows is the number of rows of a tile of few, fewSplit how many blocks share the rows of an expert there.
	fewRows, fewSplit = 8, 8
	// crowdedRows is how many rows an expert has on average, where tiles of 128 are faster.
	crowdedRows = 64
	// mostBlocks is the most in the second dimension of a launch.
	mostBlocks = 65535
)

// routesArgument and crowd are the arguments of the kernels.
type routesArgument struct {
	scores, correction, gains, weights, left, chosen                        uint64
	epsilon, scale                                                          float64
	rows, experts, choices, scoring, normalize, groups, topGroups, groupTop int32
}

type crowd struct {
	dst, x, first, second, choices, ends uint64
	of, n, k, split, narrow, step        int32
}

// mixture is where a mixture has its memory, which all of a chain share.
type mixture struct{ weights, chosen, choices, places, ends, inner, up, out, panels, slopes uint64 }

// table is the place of the addresses of the weights of experts, see expertWeights and expertBackWeights. of is what it has.
type table struct {
	at uint64
	of []uint64
}

// layExperts gives out the memory of mixtures.
func (p *spot) layExperts(l *layout, c *kernel.Chain) {
	p.tables = map[kernel.Step]*table{}
	var n, count, inner, up, out, panels, back int
	for _, step := range c.Steps {
		x, tables := expertsOf(step)
		if x == nil {
			continue
		}
		choices, experts, hidden := c.Rows*x.Routing.TopK, len(x.Gate), c.Widths[x.Src]
		n, count, inner, out = max(n, choices), max(count, experts), max(inner, choices*x.Wide), max(out, choices*hidden)
		up = max(up, choices*x.Wide)
		if _, ok := step.(*kernel.ExpertsBackStep); ok {
			up, back = max(up, choices*hidden), max(back, choices)
		}
		panels = max(panels, (choices+experts*kernel.PanelRows)*max(hidden, x.Wide))
		p.tables[step] = &table{at: l.take(2 * tables * experts)}
	}
	p.mixture = mixture{l.take(n), l.take(n), l.take(n), l.take(n), l.take(count), l.take(inner), l.take(up), l.take(out), l.take(panels), l.take(back)}
}

// expertsOf is the mixture of a step and the number of its matrices of an expert, or nil.
func expertsOf(step kernel.Step) (x *kernel.ExpertsStep, tables int) {
	switch x := step.(type) {
	case *kernel.ExpertsStep:
		return x, 3
	case *kernel.ExpertsBackStep:
		return x.Of, 5
	}
	return nil, 0
}

func hasExperts(c *kernel.Chain) bool {
	return slices.ContainsFunc(c.Steps, func(s kernel.Step) bool {
		x, _ := expertsOf(s)
		return x != nil
	})
}

// routable reports whether the kernels compute a mixture.
func routable(c *kernel.Chain, x *kernel.ExpertsStep) bool {
	return len(x.Gate) <= mostExperts && x.Routing.TopK <= mostChoices && x.Routing.Groups <= mostChoices &&
		(c.Rows+127)/128*len(x.Gate) <= mostBlocks
}

// crowdWeights are matrices [n, k] of all experts: rows in panels, or with back by position.
type crowdWeights struct {
	of   []kernel.Factor
	n, k int
	back bool
}

// keepCrowds finds matrices on the card, or brings them there, and returns their addresses. Those of the same part have the same type.
func (e *Engine) keepCrowds(parts ...crowdWeights) (at []uint64, ok bool) {
	for _, part := range parts {
		for _, w := range part.of {
			b, ok := e.keep(w, part.n, part.k)
			if !ok || (w.Layout == kernel.ByPosition) != part.back || !part.back && w.Stride != part.k || narrow(w) != narrow(part.of[0]) {
				return nil, false
			}
			at = append(at, b.at)
		}
	}
	return at, true
}

// expertWeights are the addresses of the weights of all experts: gates, ups and downs. All have the same type.
func (e *Engine) expertWeights(c *kernel.Chain, x *kernel.ExpertsStep) (at []uint64, ok bool) {
	hidden, kind := c.Widths[x.Src], narrow(x.Gate[0])
	if narrow(x.Up[0]) != kind || narrow(x.Down[0]) != kind {
		return nil, false
	}
	return e.keepCrowds(crowdWeights{x.Gate, x.Wide, hidden, false}, crowdWeights{x.Up, x.Wide, hidden, false}, crowdWeights{x.Down, hidden, x.Wide, false})
}

// routed puts the choice of experts into a stream, and what sorts choices. left gets what is left of the scores, unless it is 0.
func (e *Engine) routed(s uintptr, c *kernel.Chain, p *spot, x *kernel.ExpertsStep, left uint64) (a routesArgument, ok bool) {
	correction, all := e.vector(p, x.Correction)
	gains, both := e.vector(p, x.Gains)
	if !all || !both || !routable(c, x) {
		return a, false
	}
	r, m, count := &x.Routing, &p.mixture, len(x.Gate)
	normalize, choices := int32(0), int32(c.Rows*r.TopK)
	if r.Normalize {
		normalize = 1
	}
	a = routesArgument{p.matrices[x.Scores], correction, gains, m.weights, left, m.chosen, r.Epsilon, r.Scale, int32(c.Rows), int32(count), int32(r.TopK),
		int32(r.Scoring), normalize, int32(r.Groups), int32(r.TopGroups), int32(r.GroupTop)}
	return a, e.launch(s, routes, (c.Rows+7)/8, 1, unsafe.Pointer(&a)) && e.launch(s, members, count, 1, unsafe.Pointer(&m.choices),
		unsafe.Pointer(&m.places), unsafe.Pointer(&m.ends), unsafe.Pointer(&m.chosen), unsafe.Pointer(&choices))
}

// tabled brings the addresses of weights to the table of a step.
func (e *Engine) tabled(s uintptr, p *spot, step kernel.Step, weights []uint64) bool {
	t := p.tables[step]
	if slices.Equal(t.of, weights) {
		return true
	}
	t.of = weights
	return e.upload(s, t.at, values(floatsOf(weights)))
}

// experts computes a mixture.
func (e *Engine) experts(s uintptr, c *kernel.Chain, p *spot, x *kernel.ExpertsStep) bool {
	weights, ok := e.expertWeights(c, x)
	if !ok || !e.tabled(s, p, x, weights) {
		return false
	}
	if _, ok := e.routed(s, c, p, x, 0); !ok {
		return false
	}
	m, hidden, count, n := &p.mixture, c.Widths[x.Src], len(x.Gate), c.Rows*x.Routing.TopK
	width, of, gate := int32(hidden), int32(x.Routing.TopK), p.tables[x].at
	up, down := gate+8*uint64(count), gate+16*uint64(count)
	in := crowd{m.inner, p.matrices[x.Src], gate, up, m.choices, m.ends, of, int32(x.Wide), width, 1, narrow(x.Gate[0]), 0}
	out := crowd{m.out, m.inner, down, 0, 0, m.ends, of, width, int32(x.Wide), 1, in.narrow, 0}
	compute := e.few
	if n/count >= e.crowded {
		compute = e.many
	}
	return compute(s, in, out, c.Rows, count, m) && e.mix(s, p.matrices[x.Dst], m.out, m.weights, c.Rows, width, of, m)
}

// mix adds the rows of choices of every token, times their weights unless these are 0.
func (e *Engine) mix(s uintptr, dst, rows, weights uint64, tokens int, width, of int32, m *mixture) bool {
	return e.launch(s, mixes, tokens, int(width+255)/256, unsafe.Pointer(&dst), unsafe.Pointer(&rows), unsafe.Pointer(&weights), unsafe.Pointer(&m.places),
		unsafe.Pointer(&width), unsafe.Pointer(&of))
}

// few computes experts that few tokens are routed to.
func (e *Engine) few(s uintptr, in, out crowd, rows, count int, _ *mixture) bool {
	in.split = int32(min(fewSplit, (rows+fewRows-1)/fewRows))
	out.split = in.split
	blocks := func(c crowd, width int32) int { // groups of panels, as many in a block as their segments have room
		segments := min(8, (c.k+kernel.Segment-1)/kernel.Segment)
		each := width * kernel.PanelRows * (8 / segments)
		return int((c.n + each - 1) / each)
	}
	y, inner, outer := count*int(in.split), inners, outers
	if in.narrow != 0 {
		inner, outer = innerHalves, outerHalves
	}
	return e.launch(s, inner, blocks(in, 1), y, unsafe.Pointer(&in)) && e.launch(s, outer, blocks(out, 2), y, unsafe.Pointer(&out))
}

// many computes experts that many tokens are routed to.
func (e *Engine) many(s uintptr, in, out crowd, rows, count int, m *mixture) bool {
	up, n := in, uint64(rows)*uint64(in.of)*uint64(in.n)
	up.dst, up.first = m.up, in.second
	return e.packCrowd(s, in, count, m) && e.multiplyCrowd(s, in, rows, count, m) && e.multiplyCrowd(s, up, rows, count, m) &&
		e.launch(s, gates, int(n+255)/256, 1, unsafe.Pointer(&m.inner), unsafe.Pointer(&m.inner), unsafe.Pointer(&m.up), unsafe.Pointer(&n)) &&
		e.packCrowd(s, out, count, m) && e.multiplyCrowd(s, out, rows, count, m)
}

// packCrowd puts the rows of a product into panels.
func (e *Engine) packCrowd(s uintptr, c crowd, count int, m *mixture) bool {
	return e.launch(s, crowds, int(c.k+31)/32, count, unsafe.Pointer(&m.panels), unsafe.Pointer(&c))
}

// multiplyCrowd multiplies rows that are in panels.
func (e *Engine) multiplyCrowd(s uintptr, c crowd, rows, count int, m *mixture) bool {
	split := (rows + 127) / 128
	c.x, c.split = m.panels, int32(split)
	kind := crowds128
	if c.narrow != 0 {
		kind = crowdHalves
	}
	return e.launch(s, kind, int(c.n+127)/128, count*split, unsafe.Pointer(&c))
}
