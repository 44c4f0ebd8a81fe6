package quant

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Option is one way to store an item.
type Option struct {
	Spec Spec
	// Bytes is the size in the package.
	Bytes int64
	// KL is the predicted divergence, in nats per token, of the model in which only this item is stored this way.
	// Small divergences of items add up (HIGGS, arXiv 2411.17525).
	KL float64
	// RAM is the memory that the item takes on a device, in bytes.
	RAM int64
}

// Item is a unit that gets one spec: a matrix, or matrices that must be stored alike.
type Item struct {
	// Members name the matrices. The first one identifies the item.
	Members []string
	// Options are sums over the members. Their order does not matter.
	Options []Option
}

// Fuse combines items that must take the same spec, because an engine computes their outputs together, into one.
// Only specs that all of them offer remain, in the order of the first.
func Fuse(items ...Item) Item {
	var f Item
	for i, it := range items {
		f.Members = append(f.Members, it.Members...)
		if i == 0 {
			f.Options = slices.Clone(it.Options)
			continue
		}
		var both []Option
		for _, o := range f.Options {
			if k := slices.IndexFunc(it.Options, func(p Option) bool { return p.Spec == o.Spec }); k >= 0 {
				p := it.Options[k]
				o.Bytes, o.KL, o.RAM = o.Bytes+p.Bytes, o.KL+p.KL, o.RAM+p.RAM
				both = append(both, o)
			}
		}
		f.Options = both
	}
	return f
}

// Budget limits an allocation. Exactly one field is not 0.
type Budget struct {
	// Bytes and RAM are the most that all items may take; the divergence is minimised.
	Bytes, RAM int64
	// KL is the largest sum of divergences, in nats; bytes are minimised.
	KL float64
}

// String is "16000000 bytes", "16000000 bytes of memory" or "0.01 nats".
func (b Budget) String() string {
	switch {
	case b.Bytes != 0:
		return fmt.Sprintf("%d bytes", b.Bytes)
	case b.RAM != 0:
		return fmt.Sprintf("%d bytes of memory", b.RAM)
	}
	return fmt.Sprintf("%g nats", b.KL)
}

// BudgetError reports a budget that no allocation can meet.
type BudgetError struct {
	// Budget is the requested budget; Smallest, of the same kind, is the least that can be met.
	Budget, Smallest Budget
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("a budget of %v is less than the smallest possible, %v", e.Budget, e.Smallest)
}

// Allocation is a choice for every item.
type Allocation struct {
	// Options has one element for every item, in their order.
	Options []Option
	// Bytes, RAM and KL are sums. KL is rounded up to the unit of the computation, 2^-40 nats per item.
	Bytes, RAM int64
	KL         float64
}

// klUnit is the unit in which divergences are counted, so that sums are exact in any order. It is 1e-12 nats.
const klUnit = 0x1p-40

// maxSum bounds sums of bytes and of divergences, 4 million nats.
const maxSum = 1 << 62

// Allocate chooses an option for every item: the least sum of divergences within bytes or memory, or the fewest bytes
// within a divergence. It is the multiple-choice knapsack problem. Dominated options are dropped; the steps along the
// lower convex hulls of all items are taken in order of gain per cost, which gives the optima of all Lagrange
// multipliers, until one does not fit (Sinha and Zoltners 1979); around the last of these optima a search finds the
// choice that fills the budget best (Pisinger 1995).
//
// The result is the optimum, so that a larger budget is never worse, as long as the search stays within a bound on its
// time. Instances whose bytes and divergences are all but proportional to each other reach it; the result is then still
// at least as good as every allocation on the lower convex hull of bytes and divergence that fits. It depends neither on
// the order of the items nor on that of their options.
//
// A budget that is too small is reported as a [*BudgetError]; negative or non-finite values are
// tensor.ErrCorrupt.
func Allocate(items []Item, b Budget) (*Allocation, error) {
	p, err := newProblem(items, b)
	if err != nil {
		return nil, err
	}
	if p.cost > p.limit {
		return nil, &BudgetError{b, p.smallest(b)}
	}
	var base []int
	multiplier := 0.0
	for _, s := range p.steps() {
		switch {
		case p.at[s.item] != s.from:
		case s.cost <= p.limit-p.cost:
			p.move(s.item, s.to)
		case base == nil:
			base, multiplier = slices.Clone(p.at), float64(s.gain)/float64(s.cost)
		}
	}
	if base != nil {
		newCore(p, base, multiplier).search()
	}
	a := &Allocation{Options: make([]Option, len(items))}
	var kl int64
	for i, l := range p.lists {
		o := l[p.at[i]].Option
		a.Options[p.order[i]] = o
		a.Bytes, a.RAM, kl = a.Bytes+o.Bytes, a.RAM+o.RAM, kl+units(o.KL)
	}
	a.KL = float64(kl) * klUnit
	return a, nil
}

// candidate is an option with the part of the budget that it uses and the value to minimise.
type candidate struct {
	Option
	cost, value int64
}

// problem is an allocation in progress.
type problem struct {
	// order[i] is the index among the caller's items of item i: they are sorted by name.
	order []int
	// lists holds, for every item, the options that no other one dominates, by rising cost and falling value.
	lists [][]candidate
	// at is the choice of every item, and cost and value are its sums.
	at          []int
	cost, value int64
	limit       int64
}

// newProblem sorts items and options, and starts from the least cost.
func newProblem(items []Item, b Budget) (*problem, error) {
	if err := checkItems(items); err != nil {
		return nil, err
	}
	p := &problem{order: make([]int, len(items)), at: make([]int, len(items))}
	given := 0
	for _, set := range []bool{b.Bytes != 0, b.RAM != 0, b.KL != 0} {
		if set {
			given++
		}
	}
	if given != 1 || b.Bytes < 0 || b.RAM < 0 || !(b.KL >= 0 && b.KL <= maxSum*klUnit) {
		return nil, errors.New("a budget is a positive number of bytes, of bytes of memory, or of nats")
	}
	p.limit = b.Bytes + b.RAM
	if b.KL != 0 {
		p.limit = int64(math.Floor(b.KL / klUnit))
	}
	for i := range p.order {
		p.order[i] = i
	}
	slices.SortFunc(p.order, func(i, j int) int { return cmp.Compare(items[i].Members[0], items[j].Members[0]) })
	for _, i := range p.order {
		var list []candidate
		for _, o := range items[i].Options {
			c := candidate{o, o.Bytes, units(o.KL)}
			switch {
			case b.RAM != 0:
				c.cost = o.RAM
			case b.KL != 0:
				c.cost, c.value = c.value, c.cost
			}
			list = append(list, c)
		}
		list = undominated(list)
		p.lists = append(p.lists, list)
		p.cost, p.value = p.cost+list[0].cost, p.value+list[0].value
	}
	return p, nil
}

// smallest returns the least budget of the same kind as b that can be met.
func (p *problem) smallest(b Budget) Budget {
	switch {
	case b.Bytes != 0:
		return Budget{Bytes: p.cost}
	case b.RAM != 0:
		return Budget{RAM: p.cost}
	}
	return Budget{KL: float64(p.cost) * klUnit}
}

// move changes the choice of an item.
func (p *problem) move(item, to int) {
	was, is := &p.lists[item][p.at[item]], &p.lists[item][to]
	p.cost, p.value, p.at[item] = p.cost+is.cost-was.cost, p.value+is.value-was.value, to
}

// units counts a divergence in klUnit, rounded up, so that a sum within a target is within it.
func units(kl float64) int64 { return int64(math.Ceil(kl / klUnit)) }

// undominated keeps the options that are better than all that cost no more, by rising cost.
func undominated(list []candidate) []candidate {
	slices.SortFunc(list, func(a, b candidate) int {
		if c := cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.value, b.value)); c != 0 {
			return c
		}
		return compareOptions(a.Option, b.Option)
	})
	kept := list[:1]
	for _, c := range list[1:] {
		if c.value < kept[len(kept)-1].value {
			kept = append(kept, c)
		}
	}
	return kept
}

// compareOptions orders all distinct options; of equally good ones the first is taken.
func compareOptions(a, b Option) int {
	return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.KL, b.KL), cmp.Compare(a.RAM, b.RAM), compareSpecs(a.Spec, b.Spec))
}

// compareSpecs sorts by bits, then by block with whole rows last, then asymmetric before symmetric, then by scale.
func compareSpecs(a, b Spec) int {
	block := func(s Spec) int {
		if s.Block == WholeRow {
			return math.MaxInt
		}
		return s.Block
	}
	symmetric := func(s Spec) int {
		if s.Symmetric {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Bits, b.Bits), cmp.Compare(block(a), block(b)), cmp.Compare(symmetric(a), symmetric(b)), cmp.Compare(a.Scale, b.Scale))
}

// checkItems rejects items that cannot be allocated.
func checkItems(items []Item) error {
	if len(items) == 0 {
		return fmt.Errorf("no items: %w", tensor.ErrCorrupt)
	}
	names := map[string]bool{}
	var bytes, ram int64
	kl := 0.0
	for _, it := range items {
		if len(it.Members) == 0 {
			return fmt.Errorf("an item without members: %w", tensor.ErrCorrupt)
		}
		for _, m := range it.Members {
			if names[m] {
				return fmt.Errorf("duplicate member %.200q: %w", m, tensor.ErrCorrupt)
			}
			names[m] = true
		}
		if len(it.Options) == 0 {
			return fmt.Errorf("%.200q has no options: %w", it.Members[0], tensor.ErrCorrupt)
		}
		var most Option
		for _, o := range it.Options {
			if o.Bytes < 0 || o.RAM < 0 || !(o.KL >= 0) {
				return fmt.Errorf("%.200q: %v takes %d bytes, %d of memory and %g nats: %w", it.Members[0], o.Spec, o.Bytes, o.RAM, o.KL, tensor.ErrCorrupt)
			}
			most = Option{Bytes: max(most.Bytes, o.Bytes), KL: max(most.KL, o.KL), RAM: max(most.RAM, o.RAM)}
		}
		kl += most.KL + klUnit
		if most.Bytes > maxSum-bytes || most.RAM > maxSum-ram || !(kl <= maxSum*klUnit) {
			return fmt.Errorf("%.200q: sums of bytes or divergences are too large: %w", it.Members[0], tensor.ErrCorrupt)
		}
		bytes, ram = bytes+most.Bytes, ram+most.RAM
	}
	return nil
}
