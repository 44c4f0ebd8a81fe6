package picture

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// What engines have built in for towers of slices: ViewEdge is the root of the area of a view in pixels, mostSlices the number of slices.
const (
	ViewEdge   = 448
	mostSlices = 9
)

// cut is how a picture of a size is cut into slices: the sizes of the overview and of each slice, in pixels, and the rows and columns of slices.
type cut struct{ overview, slice, grid Size }

// cutting returns how engines cut a picture of size s into whole patches (`minicpmBestSize`). There is always at least one slice.
func cutting(s Size, patch int) cut {
	h, w := float64(s.Height), float64(s.Width)
	count := min(int(math.Ceil(w*h/(ViewEdge*ViewEdge))), mostSlices)
	var c cut
	ratio, least := math.Log(w/h), math.Inf(1)
	try := func(rows, columns int) {
		if far := math.Abs(ratio - math.Log(float64(columns)/float64(rows))); far < least {
			least, c.grid = far, Size{rows, columns}
		}
	}
	for n := max(count-1, 1); n <= min(count+1, mostSlices); n++ {
		for m := 1; m*m <= n; m++ {
			if n%m == 0 {
				try(m, n/m)
				try(n/m, m)
			}
		}
	}
	c.overview = s.view(patch, false)
	c.slice = Size{s.Height / c.grid.Height, s.Width / c.grid.Width}.view(patch, true)
	return c
}

// view returns the size of a view of a part of a picture of size s, which is as large as a view should be if it was larger, or always.
func (s Size) view(patch int, always bool) Size {
	if always || s.Height*s.Width > ViewEdge*ViewEdge {
		ratio := float64(s.Width) / float64(s.Height)
		s.Height = int(ViewEdge / math.Sqrt(ratio))
		s.Width = int(float64(s.Height) * ratio)
	}
	whole := func(edge int) int { return max(int(math.Round(float64(edge)/float64(patch)))*patch, patch) }
	return Size{whole(s.Height), whole(s.Width)}
}

// spoiled reports whether the overview has more patches than a slice: engines up to 3.6.1 then give it garbage.
func (c cut) spoiled() bool {
	return c.overview.Height*c.overview.Width > c.slice.Height*c.slice.Width
}

// longest is how many times as long as wide a picture may be that is cut into slices.
const longest = 100

// Slices returns the views that engines make of a picture that a prompt wants in size s, for a tower of patches of so many pixels: the
// overview, and then slices from left to right and from top to bottom. All are made of the picture as it is.
func (im *Image) Slices(s Size, patch int) (*Views, error) {
	if err := s.CheckSlices(patch); err != nil {
		return nil, err
	}
	c := cutting(s, patch)
	whole, err := im.Resize(c.overview)
	if err != nil {
		return nil, err
	}
	v := &Views{Images: []*Image{whole}, Size: s, Grid: c.grid}
	large, err := im.Resize(Size{c.slice.Height * c.grid.Height, c.slice.Width * c.grid.Width})
	if err != nil {
		return nil, err
	}
	for i := range c.grid.Height * c.grid.Width {
		v.Images = append(v.Images, large.part(i/c.grid.Width*c.slice.Height, i%c.grid.Width*c.slice.Width, c.slice))
	}
	return v, nil
}

// CheckSlices refuses sizes of which engines make no right views for a tower of slices.
func (s Size) CheckSlices(patch int) error {
	if err := s.Check(); err != nil {
		return err
	}
	if max(s.Height, s.Width) > longest*min(s.Height, s.Width) {
		return fmt.Errorf("a picture of %v is more than %d times as long as wide: %w", s, longest, tensor.ErrUnsupported)
	}
	if c := cutting(s, patch); c.spoiled() {
		area := patch * patch
		return fmt.Errorf("%v make an overview of %d patches and slices of %d, and engines spoil an overview that has more; give another size, as in "+
			"<img><hw>%s</hw>FILE</img>: %w", s, c.overview.Height*c.overview.Width/area, c.slice.Height*c.slice.Width/area, s.near(patch), tensor.ErrUnsupported)
	}
	return nil
}

// near is the height and width next to s of which engines make right views.
func (s Size) near(patch int) string {
	n, err := s.Whole(patch, s.Height*s.Width*2)
	if err != nil {
		return "896,896"
	}
	return fmt.Sprintf("%d,%d", n.Height, n.Width)
}

// Whole returns a size of at most about maxPixels of which engines make right views for a tower of slices: s, made smaller if it has more, with
// the least change of an edge.
func (s Size) Whole(patch, maxPixels int) (Size, error) {
	if err := s.Check(); err != nil {
		return Size{}, err
	}
	if area := s.Height * s.Width; area > maxPixels {
		shrink := math.Sqrt(float64(maxPixels) / float64(area))
		s = Size{max(1, int(float64(s.Height)*shrink)), max(1, int(float64(s.Width)*shrink))}
	}
	for d := range max(s.Height, s.Width) {
		for _, n := range []Size{{s.Height, s.Width - d}, {s.Height - d, s.Width}, {s.Height, s.Width + d}, {s.Height + d, s.Width}} {
			if n.Height > 0 && n.Width > 0 && max(n.Height, n.Width) <= longest*min(n.Height, n.Width) && !cutting(n, patch).spoiled() {
				return n, nil
			}
		}
	}
	return Size{}, fmt.Errorf("a picture of %v is more than %d times as long as wide: %w", s, longest, tensor.ErrUnsupported)
}
