package picture

import (
	"fmt"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Norm turns bytes into floats: (byte - Mean) * Scale, for red, green and blue. The numbers are `image_mean` and `image_norm` of
// llm_config.json, so Mean counts in steps of 255.
type Norm struct {
	Mean, Scale [3]float32
}

// Planes returns the pixels as [3, height, width], red first: what the engine hands to a tower with the input of whole pictures.
func (im *Image) Planes(n Norm) []float32 {
	area := im.Width * im.Height
	out := make([]float32, 3*area)
	for c := range 3 {
		table := n.table(c)
		plane := out[c*area : (c+1)*area]
		for i := range plane {
			plane[i] = table[im.Pix[3*i+c]]
		}
	}
	return out
}

// table returns the float of each byte of channel c.
func (n Norm) table(c int) (t [256]float32) {
	for v := range t {
		t[v] = (float32(v) - n.Mean[c]) * n.Scale[c]
	}
	return t
}

// Cells are how towers divide pictures: cells of Edge x Edge patches become one token, and a patch of Patch x Patch pixels is given as so many
// frames.
type Cells struct{ Patch, Edge, Frames int }

// QwenCells are those of towers of the Qwen kind with patches of so many pixels a side.
func QwenCells(patch int) Cells { return Cells{Patch: patch, Edge: 2, Frames: 2} }

// Unit is the edge of a cell in pixels.
func (c Cells) Unit() int { return c.Patch * c.Edge }

// Patches are the inputs of a tower that reads patches. A row stands for a patch; patches are in the order in which the tower
// merges them, so those of each cell follow one another, row by row.
type Patches struct {
	Grid      Size      // patches in the height and width; S is their product
	Pixels    []float32 // `patches` [S, 3*frames*patch*patch]: channel, frame (all the same), row, column
	Positions []int32   // `position_ids` [2, S]: the row of each patch, then the column
}

// Patches cuts the picture into patches. Its edges must be multiples of those of a cell: [Image.Resize] it to a size of [Size.Round] first.
func (im *Image) Patches(n Norm, c Cells) (*Patches, error) {
	if im.Height%c.Unit() != 0 || im.Width%c.Unit() != 0 {
		return nil, fmt.Errorf("a picture of %v does not divide into cells of %d pixels: %w", im.Size(), c.Unit(), tensor.ErrUnsupported)
	}
	patch := c.Patch
	p := &Patches{Grid: Size{im.Height / patch, im.Width / patch}}
	count, area := p.Grid.Height*p.Grid.Width, patch*patch
	width := 3 * c.Frames * area
	p.Pixels, p.Positions = make([]float32, count*width), make([]int32, 2*count)
	tables := [3][256]float32{n.table(0), n.table(1), n.table(2)}
	p.each(c.Edge, func(i, row, column int) {
		p.Positions[i], p.Positions[count+i] = int32(row), int32(column)
		dst := p.Pixels[i*width : (i+1)*width]
		for y := range patch {
			src := im.row(row*patch + y)[3*column*patch:]
			for x := range patch {
				for channel := range 3 {
					v := tables[channel][src[3*x+channel]]
					for frame := range c.Frames {
						dst[(c.Frames*channel+frame)*area+y*patch+x] = v
					}
				}
			}
		}
	})
	return p, nil
}

// each calls visit with the index, row and column of every patch.
func (p *Patches) each(edge int, visit func(i, row, column int)) {
	i := 0
	for row := 0; row < p.Grid.Height; row += edge {
		for column := 0; column < p.Grid.Width; column += edge {
			for within := range edge * edge {
				visit(i, row+within/edge, column+within%edge)
				i++
			}
		}
	}
}
