package picture

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Views are what the engine gives a tower of tiles of a picture: its tiles, from left to right and then from top to bottom, and the whole; or a
// tower of slices: the whole, and then its slices.
type Views struct {
	Images []*Image
	Grid   Size // rows and columns of tiles; zero if there is only the whole
	// Size is the one that the engine keeps for the next picture.
	Size Size
}

// Cut returns the views of a picture that a prompt wants in size s, each of edge x edge pixels. A picture that is to be larger is resized
// to whole tiles, at most so many pixels an edge (`image_max_size`).
func (im *Image) Cut(s Size, edge, most int) (*Views, error) {
	tiled := max(s.Height, s.Width) > edge
	s, err := s.Tiled(edge, most)
	if err != nil {
		return nil, err
	}
	v := &Views{Size: s}
	if tiled {
		large, err := im.Resize(s)
		if err != nil {
			return nil, err
		}
		v.Grid = Size{s.Height / edge, s.Width / edge}
		for i := range v.Grid.Height * v.Grid.Width {
			v.Images = append(v.Images, large.part(i/v.Grid.Width*edge, i%v.Grid.Width*edge, Size{edge, edge}))
		}
	}
	whole, err := im.Resize(Size{edge, edge})
	v.Images = append(v.Images, whole)
	return v, err
}

// Tiled returns the size in which the engine cuts a picture that a prompt wants in size s.
func (s Size) Tiled(edge, most int) (Size, error) {
	if err := s.Check(); err != nil || max(s.Height, s.Width) <= edge {
		return s, err
	}
	s, err := s.Round(edge)
	if s.Height, s.Width = min(s.Height, most), min(s.Width, most); err == nil && (s.Height%edge != 0 || s.Width%edge != 0) {
		err = fmt.Errorf("image_max_size %d is no multiple of image_size_unit %d: %w", most, edge, tensor.ErrUnsupported)
	}
	return s, err
}

// part returns the part of the picture of some size whose upper left pixel is in a row and a column.
func (im *Image) part(row, column int, s Size) *Image {
	out := &Image{Width: s.Width, Height: s.Height, Pix: make([]byte, 0, 3*s.Height*s.Width)}
	for y := range s.Height {
		out.Pix = append(out.Pix, im.row(row + y)[3*column:][:3*s.Width]...)
	}
	return out
}
