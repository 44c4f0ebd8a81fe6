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
	scores, correction, gains, weights, chosen                              uint64
	epsilon, scale                                                          float64
	rows, experts, choices, scoring, normalize, groups, topGroups, groupTop int32
}

type crowd struct {
	dst, x, first, second, choices, ends uint64
	of, n, k, split, narrow              int32
}

// mixture is where a mixture has its memory, which all of a chain share.
type mixture struct{ weights, chosen, choices, places, ends, inner, up, out, panels uint64 }

// table is the place of the addresses of the weights of experts: gates, ups and downs. of is what it has.
type table struct {
	at uint64
	of []uint64
}

// layExperts gives out the memory of mixtures.
func (p *spot) layExperts(l *layout, c *kernel.Chain) {
	p.tables = map[*kernel.ExpertsStep]*table{}
	var n, count, inner, out, panels int
	for _, step := range c.Steps {
		x, ok := step.(*kernel.ExpertsStep)
		if !ok {
			continue
		}
		choices, experts, hidden := c.Rows*x.Routing.TopK, len(x.Gate), c.Widths[x.Src]
		n, count, inner, out = max(n, choices), max(count, experts), max(inner, choices*x.Wide), max(out, choices*hidden)
		panels = max(panels, (choices+experts*kernel.PanelRows)*max(hidden, x.Wide))
		p.tables[x] = &table{at: l.take(6 * experts)}
	}
	p.mixture = mixture{l.take(n), l.take(n), l.take(n), l.take(n), l.take(count), l.take(inner), l.take(inner), l.take(out), l.take(panels)}
}

func hasExperts(c *kernel.Chain) bool {
	return slices.ContainsFunc(c.Steps, func(s kernel.Step) bool {
		_, ok := s.(*kernel.ExpertsStep)
		return ok
	})
}

// routable reports whether the kernels compute a mixture.
func routable(c *kernel.Chain, x *kernel.ExpertsStep) bool {
	return len(x.Gate) <= mostExperts && x.Routing.TopK <= mostChoices && x.Routing.Groups <= mostChoices &&
		(c.Rows+127)/128*len(x.Gate) <= mostBlocks
}

// expertWeights finds the weights of all experts on the card, or brings them there, and returns their addresses: gates, ups and downs. All have the
// same type.
func (e *Engine) expertWeights(c *kernel.Chain, x *kernel.ExpertsStep) (at []uint64, ok bool) {
	hidden := c.Widths[x.Src]
	for _, part := range []struct {
		of   []kernel.Factor
		n, k int
	}{{x.Gate, x.Wide, hidden}, {x.Up, x.Wide, hidden}, {x.Down, hidden, x.Wide}} {
		for _, w := range part.of {
			b, ok := e.keep(w, part.n, part.k)
			if !ok || w.Layout == kernel.ByPosition || w.Stride != part.k || narrow(w) != narrow(x.Gate[0]) {
				return nil, false
			}
			at = append(at, b.at)
		}
	}
	return at, true
}

// experts computes a mixture.
func (e *Engine) experts(s uintptr, c *kernel.Chain, p *spot, x *kernel.ExpertsStep) bool {
	weights, ok := e.expertWeights(c, x)
	correction, all := e.vector(p, x.Correction)
	gains, both := e.vector(p, x.Gains)
	if !ok || !all || !both || !routable(c, x) {
		return false
	}
	t, r, m := p.tables[x], &x.Routing, &p.mixture
	if !slices.Equal(t.of, weights) {
		if t.of = weights; !e.upload(s, t.at, values(floatsOf(weights))) {
			return false
		}
	}
	hidden, count, n := c.Widths[x.Src], len(x.Gate), c.Rows*r.TopK
	normalize, choices, width, of := int32(0), int32(n), int32(hidden), int32(r.TopK)
	if r.Normalize {
		normalize = 1
	}
	a := routesArgument{p.matrices[x.Scores], correction, gains, m.weights, m.chosen, r.Epsilon, r.Scale, int32(c.Rows), int32(count), of, int32(r.Scoring),
		normalize, int32(r.Groups), int32(r.TopGroups), int32(r.GroupTop)}
	if !e.launch(s, routes, (c.Rows+7)/8, 1, unsafe.Pointer(&a)) || !e.launch(s, members, count, 1, unsafe.Pointer(&m.choices), unsafe.Pointer(&m.places),
		unsafe.Pointer(&m.ends), unsafe.Pointer(&m.chosen), unsafe.Pointer(&choices)) {
		return false
	}
	gate, up, down := t.at, t.at+8*uint64(count), t.at+16*uint64(count)
	in := crowd{m.inner, p.matrices[x.Src], gate, up, m.choices, m.ends, of, int32(x.Wide), width, 1, narrow(x.Gate[0])}
	out := crowd{m.out, m.inner, down, 0, 0, m.ends, of, width, int32(x.Wide), 1, in.narrow}
	compute := e.few
	if n/count >= e.crowded {
		compute = e.many
	}
	return compute(s, in, out, c.Rows, count, m) && e.launch(s, mixes, c.Rows, (hidden+255)/256, unsafe.Pointer(&p.matrices[x.Dst]), unsafe.Pointer(&m.out),
		unsafe.Pointer(&m.weights), unsafe.Pointer(&m.places), unsafe.Pointer(&width), unsafe.Pointer(&of))
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
	split := (rows + 127) / 128
	product := func(c crowd) bool {
		c.x, c.split = m.panels, int32(split)
		kind := crowds128
		if c.narrow != 0 {
			kind = crowdHalves
		}
		return e.launch(s, kind, int(c.n+127)/128, count*split, unsafe.Pointer(&c))
	}
	pack := func(c crowd) bool {
		return e.launch(s, crowds, int(c.k+31)/32, count, unsafe.Pointer(&m.panels), unsafe.Pointer(&c))
	}
	up, n := in, uint64(rows)*uint64(in.of)*uint64(in.n)
	up.dst, up.first = m.up, in.second
	return pack(in) && product(in) && product(up) && e.launch(s, gates, int(n+255)/256, 1, unsafe.Pointer(&m.inner), unsafe.Pointer(&m.inner),
		unsafe.Pointer(&m.up), unsafe.Pointer(&n)) &&
		pack(out) && product(out)
}
