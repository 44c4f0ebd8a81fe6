package figure

import (
	"math"
	"unicode/utf8"
)

// label is the position of a point's name: the upper left corner of its text.
type label struct {
	spot
	// leader reports whether a line joins the label, at joint, with its point.
	leader bool
	joint  spot
}

// box is a rectangle.
type box struct{ left, top, right, bottom float64 }

func (a box) overlaps(b box) bool {
	return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
}

func (a box) inside(b box) bool {
	return a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom
}

// directions are the positions of a label relative to its point, best first: -1, 0 and 1 for left, centred and right,
// and for above, level and below. A front falls to the right, so there is usually room above it to the right.
var directions = [][2]float64{{1, -1}, {1, 0}, {1, 1}, {0, -1}, {0, 1}, {-1, 0}, {-1, -1}, {-1, 1}}

// labels places the names of all points. Each gets the nearest position that is inside the plot and overlaps no point
// and no earlier label, or the best direction if there is none.
func labels(points []Point, dots []spot, r frame) []label {
	const (
		gap, furthest, stride = 4.0, 300.0, 9.0
		leaderFrom            = 22.0 // closer labels need no leader
	)
	inside := box{r.left + 2, r.top + 2, r.right + 14, r.bottom - 2}
	taken := make([]box, len(dots))
	for i, d := range dots {
		taken[i] = box{d.x - dotRadius, d.y - dotRadius, d.x + dotRadius, d.y + dotRadius}
	}
	list := make([]label, len(points))
	for i, p := range points {
		width := charWidth * float64(utf8.RuneCountInString(p.Name))
		d := dots[i]
		at := func(direction [2]float64, distance float64) box {
			x, y := d.x+float64(direction[0]*(dotRadius+distance)), d.y+float64(direction[1]*distance)
			left := x - float64((1-direction[0])/2*width)
			top := y - float64((1-direction[1])/2*lineHeight)
			if direction[0] == 0 {
				top += direction[1] * dotRadius
			}
			return box{left, top, left + width, top + lineHeight}
		}
		free := func(b box) bool {
			if !b.inside(inside) {
				return false
			}
			for _, t := range taken {
				if b.overlaps(t) {
					return false
				}
			}
			return true
		}
		best, far := at(directions[0], gap), gap
	search:
		for distance := gap; distance <= furthest; distance += stride {
			for _, direction := range directions {
				if b := at(direction, distance); free(b) {
					best, far = b, distance
					break search
				}
			}
		}
		taken = append(taken, best)
		list[i] = label{spot: spot{best.left, best.top}, leader: far >= leaderFrom}
		list[i].joint = spot{
			math.Max(best.left, math.Min(d.x, best.right)),
			math.Max(best.top, math.Min(d.y, best.bottom)),
		}
	}
	return list
}
