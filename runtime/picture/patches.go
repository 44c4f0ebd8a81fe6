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

// Patches are the inputs of a tower of the Qwen kind. A row stands for a patch; patches are in the order in which the tower
// merges them, so the four of each cell of 2 x 2 patches follow one another.
type Patches struct {
	Grid      Size      // patches in the height and width; S is their product, and the picture becomes S/4 tokens
	Pixels    []float32 // `patches` [S, 3*2*patch*patch]: channel, frame (the picture twice), row, column
	Positions []int32   // `position_ids` [2, S]: the row of each patch, then the column
}

// Patches cuts the picture into squares of so many pixels a side. Its edges must be multiples of two patches: [Image.Resize] it
// to a size of [Size.Round] first.
func (im *Image) Patches(n Norm, patch int) (*Patches, error) {
	if im.Height%(2*patch) != 0 || im.Width%(2*patch) != 0 {
		return nil, fmt.Errorf("a picture of %v does not divide into cells of %d pixels: %w", im.Size(), 2*patch, tensor.ErrUnsupported)
	}
	p := &Patches{Grid: Size{im.Height / patch, im.Width / patch}}
	count, area := p.Grid.Height*p.Grid.Width, patch*patch
	p.Pixels, p.Positions = make([]float32, count*6*area), make([]int32, 2*count)
	tables := [3][256]float32{n.table(0), n.table(1), n.table(2)}
	p.each(func(i, row, column int) {
		p.Positions[i], p.Positions[count+i] = int32(row), int32(column)
		dst := p.Pixels[i*6*area : (i+1)*6*area]
		for y := range patch {
			src := im.row(row*patch + y)[3*column*patch:]
			for x := range patch {
				for c := range 3 {
					v := tables[c][src[3*x+c]]
					dst[(2*c)*area+y*patch+x], dst[(2*c+1)*area+y*patch+x] = v, v
				}
			}
		}
	})
	return p, nil
}

// each calls visit with the index, row and column of every patch.
func (p *Patches) each(visit func(i, row, column int)) {
	i := 0
	for row := 0; row < p.Grid.Height; row += 2 {
		for column := 0; column < p.Grid.Width; column += 2 {
			for cell := range 4 {
				visit(i, row+cell/2, column+cell%2)
				i++
			}
		}
	}
}
