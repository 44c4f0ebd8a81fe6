package picture_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// A picture becomes an overview and slices of the sizes that engines give them, as they are at patches of 14 pixels.
func TestSlices(t *testing.T) {
	t.Parallel()
	type size = picture.Size
	for _, c := range []struct{ in, overview, slice, grid size }{
		{size{100, 100}, size{98, 98}, size{448, 448}, size{1, 1}},
		{size{480, 640}, size{392, 518}, size{392, 518}, size{1, 1}},
		{size{224, 112}, size{224, 112}, size{448, 448}, size{2, 1}},
		{size{896, 896}, size{448, 448}, size{448, 448}, size{2, 2}},
		{size{1085, 1920}, size{336, 588}, size{476, 420}, size{2, 4}},
		{size{3, 200}, size{14, 196}, size{84, 2562}, size{1, 2}},
	} {
		im := &picture.Image{Width: 1, Height: 2, Pix: []byte{0, 0, 0, 90, 90, 90}}
		v, err := im.Slices(c.in, 14)
		if err != nil {
			t.Fatal(c.in, err)
		}
		want := append([]size{c.overview}, slices.Repeat([]size{c.slice}, c.grid.Height*c.grid.Width)...)
		var got []size
		for _, x := range v.Images {
			got = append(got, x.Size())
		}
		if v.Grid != c.grid || !slices.Equal(got, want) {
			t.Errorf("%v: %v, %v, want %v, %v", c.in, v.Grid, got, c.grid, want)
		}
		if first, last := v.Images[1].Pix[0], v.Images[len(v.Images)-1].Pix; first != 0 || last[len(last)-1] != 90 {
			t.Errorf("%v: the first pixel is %d, the last %d", c.in, first, last[len(last)-1])
		}
	}
}

// Engines spoil an overview of more patches than a slice, so such a size is refused with one that is next to it.
func TestSpoiledSlices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, near picture.Size }{
		{picture.Size{Height: 1080, Width: 1920}, picture.Size{Height: 1085, Width: 1920}},
		{picture.Size{Height: 720, Width: 1280}, picture.Size{Height: 723, Width: 1280}},
		{picture.Size{Height: 2000, Width: 1000}, picture.Size{Height: 2000, Width: 990}},
	} {
		if err := c.in.CheckSlices(14); !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), "<hw>") {
			t.Errorf("%v: %v", c.in, err)
		}
		if got, err := c.in.Whole(14, 1<<24); err != nil || got != c.near || got.CheckSlices(14) != nil {
			t.Errorf("%v: %v, want %v: %v", c.in, got, c.near, err)
		}
	}
	if s, err := (picture.Size{Height: 3000, Width: 4000}).Whole(14, 1<<20); err != nil || s.Height*s.Width > 1<<20 || s.CheckSlices(14) != nil {
		t.Errorf("%v: %v", s, err)
	}
	for _, s := range []picture.Size{{Height: 1000, Width: 9}, {Height: 9, Width: 1000}} {
		if err := s.CheckSlices(14); !errors.Is(err, tensor.ErrUnsupported) {
			t.Errorf("%v: %v", s, err)
		}
	}
	if err := (picture.Size{}).CheckSlices(14); !errors.Is(err, tensor.ErrCorrupt) {
		t.Errorf("no pixels: %v", err)
	}
}
