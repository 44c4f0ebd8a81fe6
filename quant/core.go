package quant

import (
	"cmp"
	"math"
	"slices"
)

// maxStates bounds the states that are kept after an item, maxGrown those that a search visits, and thus its time. Models
// need a few thousand.
const (
	maxStates = 1 << 12
	maxGrown  = 1 << 16
)

// core searches for a better allocation by dynamic programming that begins with the items for which another option
// nearly pays and adds one item after the other: Pisinger, "A minimal algorithm for the multiple-choice knapsack
// problem" (1995). A state is a set of choices for the items so far, all others keeping those of the base; it is
// dropped when another costs no more and is as good, or when even the best slopes of the remaining items cannot make
// it better than the best known state.
type core struct {
	p *problem
	// base is the optimum for the Lagrange multiplier of the first step that does not fit the budget.
	base  []int
	slack int64
	value int64
	items []coreItem
	nodes []node
}

// coreItem is an item of the search. Up is the largest gain of another option for each unit of cost, down the smallest
// loss for each unit saved; both over this item and all after it.
type coreItem struct {
	item     int
	distance float64
	up, down float64
}

// state is a sum of differences to the base; its choices form a linked list that begins with a node.
type state struct {
	cost, value int64
	node        int32
}

// node is a choice that differs from the base.
type node struct {
	item, to int32
	before   int32
}

// newCore sets up a search around the base; multiplier is the gain for a unit of cost at which the budget ends.
func newCore(p *problem, base []int, multiplier float64) *core {
	c := &core{p: p, base: base, slack: p.limit}
	for i, list := range p.lists {
		b := list[base[i]]
		c.slack, c.value = c.slack-b.cost, c.value+b.value
		it := coreItem{item: i, down: math.Inf(1)}
		for _, o := range list {
			switch slope := float64(b.value-o.value) / float64(o.cost-b.cost); {
			case o.cost > b.cost:
				it.up = max(it.up, slope)
			case o.cost < b.cost:
				it.down = min(it.down, slope)
			}
		}
		it.distance = min(multiplier-it.up, it.down-multiplier)
		c.items = append(c.items, it)
	}
	slices.SortStableFunc(c.items, func(a, b coreItem) int { return cmp.Compare(a.distance, b.distance) })
	for i := len(c.items) - 2; i >= 0; i-- {
		it, next := &c.items[i], c.items[i+1]
		it.up, it.down = max(it.up, next.up), min(it.down, next.down)
	}
	return c
}

// bound returns a lower bound of the values that a state can still reach; at is the next item.
func (c *core) bound(s state, at int) float64 {
	up, down := 0.0, math.Inf(1)
	if at < len(c.items) {
		up, down = c.items[at].up, c.items[at].down
	}
	v := float64(c.value + s.value)
	left := c.slack - s.cost
	if left < 0 {
		return v - float64(down*float64(left))
	}
	return v - float64(up*float64(left))
}

// search changes the problem's choices to the best ones that it finds.
func (c *core) search() {
	best := state{node: -1}
	known := c.p.value
	states := []state{{node: -1}}
	var grown []state
	looked := 0
	for at, it := range c.items {
		list := c.p.lists[it.item]
		b := list[c.base[it.item]]
		grown = grown[:0]
		for _, s := range states {
			for k, o := range list {
				n := state{s.cost + o.cost - b.cost, s.value + o.value - b.value, s.node}
				if c.bound(n, at+1) >= float64(known) {
					continue
				}
				if k != c.base[it.item] {
					n.node = int32(len(c.nodes))
					c.nodes = append(c.nodes, node{int32(it.item), int32(k), s.node})
				}
				if n.cost <= c.slack && c.value+n.value < known {
					known, best = c.value+n.value, n
				}
				grown = append(grown, n)
			}
		}
		looked += len(grown)
		states, grown = c.prune(grown, at+1), states
		if len(states) == 0 || looked > maxGrown {
			break
		}
	}
	if known == c.p.value {
		return
	}
	for i, k := range c.base {
		c.p.move(i, k)
	}
	for n := best.node; n >= 0; n = c.nodes[n].before {
		c.p.move(int(c.nodes[n].item), int(c.nodes[n].to))
	}
}

// prune drops states that others dominate, and the least promising ones of too many.
func (c *core) prune(list []state, at int) []state {
	slices.SortFunc(list, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.value, b.value), cmp.Compare(a.node, b.node))
	})
	kept := list[:0]
	for _, s := range list {
		if len(kept) == 0 || s.value < kept[len(kept)-1].value {
			kept = append(kept, s)
		}
	}
	if len(kept) > maxStates {
		slices.SortStableFunc(kept, func(a, b state) int { return cmp.Compare(c.bound(a, at), c.bound(b, at)) })
		kept = kept[:maxStates]
	}
	return kept
}
