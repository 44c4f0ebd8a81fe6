package picture_test

import (
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/picture"
)

// A picture that is to be larger than a tile is made whole tiles, from left to right and then from top to bottom, and is given once more
// as a whole.
func TestCut(t *testing.T) {
	t.Parallel()
	const edge = 4
	im := &picture.Image{Width: 3 * edge, Height: 2 * edge}
	for y := range im.Height {
		for x := range im.Width {
			im.Pix = append(im.Pix, byte(y), byte(x), byte(y/edge*3+x/edge))
		}
	}
	for _, c := range []struct {
		size, grid, kept picture.Size
	}{
		{picture.Size{Height: 8, Width: 12}, picture.Size{Height: 2, Width: 3}, picture.Size{Height: 8, Width: 12}},
		{picture.Size{Height: 6, Width: 13}, picture.Size{Height: 2, Width: 3}, picture.Size{Height: 8, Width: 12}},
		{picture.Size{Height: 2, Width: 5}, picture.Size{Height: 1, Width: 1}, picture.Size{Height: 4, Width: 4}},
		{picture.Size{Height: 40, Width: 9}, picture.Size{Height: 3, Width: 2}, picture.Size{Height: 12, Width: 8}},
		{picture.Size{Height: 4, Width: 4}, picture.Size{}, picture.Size{Height: 4, Width: 4}},
		{picture.Size{Height: 1, Width: 3}, picture.Size{}, picture.Size{Height: 1, Width: 3}},
	} {
		v, err := im.Cut(c.size, edge, 3*edge)
		if err != nil {
			t.Fatal(c.size, err)
		}
		if v.Grid != c.grid || v.Size != c.kept || len(v.Images) != c.grid.Height*c.grid.Width+1 {
			t.Errorf("%v: %v, %v, %d views, want %v, %v", c.size, v.Grid, v.Size, len(v.Images), c.grid, c.kept)
		}
		for _, x := range v.Images {
			if x.Width != edge || x.Height != edge || len(x.Pix) != 3*edge*edge {
				t.Errorf("%v: a view of %v with %d bytes", c.size, x.Size(), len(x.Pix))
			}
		}
	}
	v, err := im.Cut(im.Size(), edge, 3*edge)
	if err != nil {
		t.Fatal(err)
	}
	for i, tile := range v.Images[:6] {
		want := []byte{byte(i / 3 * edge), byte(i % 3 * edge), byte(i)}
		if !slices.Equal(tile.Pix[:3], want) || tile.Pix[len(tile.Pix)-1] != byte(i) {
			t.Errorf("tile %d begins with %v, want %v", i, tile.Pix[:3], want)
		}
	}
	for _, bad := range []picture.Size{{Height: 1, Width: 12}, {Height: 0, Width: 4}, {Height: 12, Width: -1}, {Height: 1 << 20, Width: 1 << 20}} {
		if v, err := im.Cut(bad, edge, 3*edge); err == nil {
			t.Errorf("%v: %v", bad, v.Grid)
		}
	}
	if _, err := im.Cut(im.Size(), edge, 3*edge-1); err == nil {
		t.Error("a largest size that is no multiple of a tile")
	}
}
