package cuda

import (
	"unsafe"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// expertBackWeights is expertWeights for the way back: downs, gates and ups by position, then gates and ups. None come if not all have room.
func (e *Engine) expertBackWeights(c *kernel.Chain, x *kernel.ExpertsBackStep) (at []uint64, ok bool) {
	hidden, wide, need := c.Widths[x.Of.Src], x.Of.Wide, uint64(0)
	parts := []crowdWeights{{x.DownBack, wide, hidden, true}, {x.GateBack, hidden, wide, true}, {x.UpBack, hidden, wide, true},
		{x.Of.Gate, wide, hidden, false}, {x.Of.Up, wide, hidden, false}}
	for _, part := range parts {
		need += uint64(len(part.of)) * sizeOf(bytesOf(part.of[0], part.n, part.k))
	}
	if need > e.limit || narrow(x.Of.Gate[0]) != narrow(x.Of.Up[0]) {
		return nil, false
	}
	return e.keepCrowds(parts...)
}

// expertsBack is the way back through a mixture.
func (e *Engine) expertsBack(s uintptr, c *kernel.Chain, p *spot, x *kernel.ExpertsBackStep) bool {
	weights, ok := e.expertBackWeights(c, x)
	if !ok || !e.tabled(s, p, x, weights) {
		return false
	}
	routing, ok := e.routed(s, c, p, x.Of, p.matrices[x.DScores])
	if !ok {
		return false
	}
	at, m, all, count := p.matrices, &p.mixture, c.Rows*x.Of.Routing.TopK, len(x.Of.Gate)
	of, hidden, wide, choices, n := int32(x.Of.Routing.TopK), int32(c.Widths[x.Of.Src]), int32(x.Of.Wide), int32(all), uint64(all)*uint64(x.Of.Wide)
	table := func(i int) uint64 { return p.tables[x].at + 8*uint64(i*count) }
	forth := func(dst uint64, i int) crowd {
		return crowd{dst, at[x.Of.Src], table(i), 0, m.choices, m.ends, of, wide, hidden, 1, narrow(x.Of.Gate[0]), 0}
	}
	back := func(dst, src uint64, i int) crowd {
		return crowd{dst, src, table(i), 0, 0, m.ends, of, hidden, wide, 1, 0, (hidden + 3) &^ 3}
	}
	dInner := crowd{m.inner, at[x.DOut], table(0), 0, m.choices, m.ends, of, wide, hidden, 1, 0, (wide + 3) &^ 3}
	product := func(c crowd, packed bool) bool {
		return (packed || e.packCrowd(s, c, count, m)) && e.multiplyCrowd(s, c, int(choices/of), count, m)
	}
	pick := func(dst int, src, weights uint64) bool {
		return dst == 0 || e.launch(s, picks, all, int(hidden+255)/256, unsafe.Pointer(&at[dst]), unsafe.Pointer(&src), unsafe.Pointer(&weights),
			unsafe.Pointer(&m.choices), unsafe.Pointer(&hidden), unsafe.Pointer(&of))
	}
	if !product(forth(at[x.DGate], 3), false) || !product(forth(at[x.DUp], 4), true) ||
		!e.launch(s, gates, int(n+255)/256, 1, unsafe.Pointer(&at[x.Inner]), unsafe.Pointer(&at[x.DGate]), unsafe.Pointer(&at[x.DUp]), unsafe.Pointer(&n)) ||
		!product(dInner, false) ||
		!e.launch(s, weightBacks, (all+63)/64, 1, unsafe.Pointer(&m.slopes), unsafe.Pointer(&m.inner), unsafe.Pointer(&at[x.Inner]),
			unsafe.Pointer(&m.weights), unsafe.Pointer(&m.choices), unsafe.Pointer(&choices), unsafe.Pointer(&wide)) ||
		!e.launch(s, gateBacks, int(n+255)/256, 1, unsafe.Pointer(&at[x.DGate]), unsafe.Pointer(&at[x.DUp]), unsafe.Pointer(&m.inner), unsafe.Pointer(&n)) {
		return false
	}
	if !product(back(m.out, at[x.DGate], 1), false) || !product(back(m.up, at[x.DUp], 2), false) || !e.sum(s, m.out, m.up, all*int(hidden)) ||
		!e.mix(s, at[x.DSrc], m.out, 0, c.Rows, hidden, of, m) ||
		!e.launch(s, routeBacks, (c.Rows+7)/8, 1, unsafe.Pointer(&routing), unsafe.Pointer(&m.slopes)) {
		return false
	}
	return pick(x.In, at[x.Of.Src], 0) && pick(x.DDown, at[x.DOut], m.weights) &&
		e.download(s, values(unsafe.Slice((*float32)(unsafe.Pointer(&x.Ends[0])), count)), m.ends)
}
