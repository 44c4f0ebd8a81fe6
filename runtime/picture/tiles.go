package picture

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Views are what the engine gives a tower of tiles of a picture: its tiles, from left to right and then from top to bottom, and the whole.
type Views struct {
	Images []*Image
	Grid   Size // rows and columns of tiles; zero if there is only the whole
	// Size is the one that the engine keeps for the next picture.
	Size Size
}

// Cut returns the views of a picture that a prompt wants in size s, each of edge x edge pixels. A picture that is to be larger is resized
// to whole tiles, at most so many pixels an edge (`image_max_size`).
func (im *Image) Cut(s Size, edge, most int) (*Views, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	v := &Views{Size: s}
	if max(s.Height, s.Width) > edge {
		s, err := s.Round(edge)
		if err != nil {
			return nil, err
		}
		if s.Height, s.Width = min(s.Height, most), min(s.Width, most); s.Height%edge != 0 || s.Width%edge != 0 {
			return nil, fmt.Errorf("image_max_size %d is no multiple of image_size_unit %d: %w", most, edge, tensor.ErrUnsupported)
		}
		large, err := im.Resize(s)
		if err != nil {
			return nil, err
		}
		v.Size, v.Grid = s, Size{s.Height / edge, s.Width / edge}
		for i := range v.Grid.Height * v.Grid.Width {
			v.Images = append(v.Images, large.part(i/v.Grid.Width*edge, i%v.Grid.Width*edge, edge))
		}
	}
	whole, err := im.Resize(Size{edge, edge})
	v.Images = append(v.Images, whole)
	return v, err
}

// part returns the square of so many pixels a side whose upper left pixel is in a row and a column.
func (im *Image) part(row, column, edge int) *Image {
	out := &Image{Width: edge, Height: edge, Pix: make([]byte, 0, 3*edge*edge)}
	for y := range edge {
		out.Pix = append(out.Pix, im.row(row + y)[3*column:][:3*edge]...)
	}
	return out
}
