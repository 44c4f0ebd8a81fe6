package quant

import "math"

// Point is what an allocation costs and what is predicted of it.
type Point struct {
	// Bytes are those of the package, KL is in nats.
	Bytes int64
	KL    float64
}

// Frontier lists, from the fewest bytes to the least divergence, the allocations on the lower convex hull of all that are
// possible: each has the least divergence that its bytes allow, and no allocation lies below the lines between them.
// Errors are those of [Allocate].
func Frontier(items []Item) ([]Point, error) {
	p, err := newProblem(items, Budget{Bytes: math.MaxInt64})
	if err != nil {
		return nil, err
	}
	point := func() Point { return Point{p.cost, float64(p.value) * klUnit} }
	points := []Point{point()}
	for _, s := range p.steps() {
		p.move(s.item, s.to)
		points = append(points, point())
	}
	return points, nil
}
