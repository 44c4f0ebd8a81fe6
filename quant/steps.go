package quant

import (
	"cmp"
	"math/bits"
	"slices"
)

// step is a move of one item along its lower convex hull.
type step struct {
	item, from, to int
	// cost is positive, and so is gain, the decrease of the value.
	cost, gain int64
}

// compareSteps orders steps by falling gain per cost.
func compareSteps(a, b step) int {
	ha, la := bits.Mul64(uint64(a.gain), uint64(b.cost))
	hb, lb := bits.Mul64(uint64(b.gain), uint64(a.cost))
	return cmp.Or(cmp.Compare(hb, ha), cmp.Compare(lb, la))
}

// steps lists the steps of all items, the best first; those of an item are in their order.
func (p *problem) steps() []step {
	var all []step
	for i, list := range p.lists {
		first := len(all)
		for k := 1; k < len(list); k++ {
			s := between(list, i, k-1, k)
			// A step that is better than the one before it merges with it.
			for len(all) > first && compareSteps(s, all[len(all)-1]) < 0 {
				s = between(list, i, all[len(all)-1].from, k)
				all = all[:len(all)-1]
			}
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, compareSteps)
	return all
}

// between returns the step between two options of a list.
func between(list []candidate, item, from, to int) step {
	return step{item, from, to, list[to].cost - list[from].cost, list[from].value - list[to].value}
}
