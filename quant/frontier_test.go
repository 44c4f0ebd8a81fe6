package quant

import "math"

// point is what an allocation costs and what is predicted of it.
type point struct {
	// Bytes are those of the package, KL is in nats.
	Bytes int64
	KL    float64
}

// frontier lists, from the fewest bytes to the least divergence, the allocations on the lower convex hull of all that are
// possible: each has the least divergence that its bytes allow, and no allocation lies below the lines between them.
// Errors are those of [Allocate].
func frontier(items []Item) ([]point, error) {
	p, err := newProblem(items, Budget{Bytes: math.MaxInt64})
	if err != nil {
		return nil, err
	}
	now := func() point { return point{p.cost, float64(p.value) * klUnit} }
	points := []point{now()}
	for _, s := range p.steps() {
		p.move(s.item, s.to)
		points = append(points, now())
	}
	return points, nil
}
