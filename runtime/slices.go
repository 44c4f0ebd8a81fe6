package runtime

import (
	"context"
	"slices"
	"strconv"

	"github.com/llmexport/llmexport/runtime/backend"
	"github.com/llmexport/llmexport/runtime/picture"
)

// slices reads an overview and slices, all together, as the engine does: the patches of a view side by side, row by row, and zeros after those
// of the overview.
func (t *Tower) slices(ctx context.Context, v *picture.Views) (Picture, error) {
	p := t.patch
	count := func(im *picture.Image) int { return im.Height / p * (im.Width / p) }
	n := 0
	for _, im := range v.Images {
		n = max(n, count(im))
	}
	pixels, places := make([]float32, len(v.Images)*3*p*p*n), make([]int32, 0, len(v.Images)*(n+2))
	for i, im := range v.Images {
		planes := im.Planes(picture.Norm{Mean: t.pkg.Config.ImageMean, Scale: t.pkg.Config.ImageNorm})
		wide := im.Width / p
		for k := range n {
			if k >= count(im) {
				places = append(places, 0)
				continue
			}
			row, column := k/wide, k%wide
			places = append(places, bucket(row, im.Height/p)*viewSide+bucket(column, wide))
			for line := range 3 * p { // of all channels
				from := (line/p*im.Height+row*p+line%p)*im.Width + column*p
				copy(pixels[((i*3*p+line)*n+k)*p:][:p], planes[from:])
			}
		}
	}
	for _, im := range v.Images {
		places = append(places, int32(im.Height/p), int32(im.Width/p))
	}
	rows, err := t.run(ctx, backend.Call{Embeddings: pixels, Tokens: len(v.Images), All: true, Positions: places})
	return newPicture(rows, 1, len(rows)/t.pkg.Config.HiddenSize), err
}

// viewSide is the edge of the square of learned positions that engines take a tower of slices to have.
const viewSide = 70

// bucket is the row or column of the square for a row or column of a view that has so many, in the engine's arithmetic.
func bucket(i, n int) int32 { return int32(float32(float32(i)/float32(n)) * viewSide) }

// number returns the tokens that the engine writes before picture n of a tower of slices.
func (p *Package) number(n int) []int32 {
	return append(append([]int32{p.Config.NumberStart}, p.Tokenizer.Encode(strconv.Itoa(n))...), p.Config.NumberEnd)
}

// frameSlices returns the tokens that the engine puts in place of the first picture, each of whose views has so many rows.
func (t *Tower) frameSlices(v *picture.Views, rows int) []int32 {
	c, out := t.pkg.Config, t.pkg.number(0)
	start, end := c.VisionStart, c.VisionEnd
	for range v.Images {
		out = append(append(append(out, start), slices.Repeat([]int32{c.ImagePad}, rows)...), end)
		start, end = c.SliceStart, c.SliceEnd
	}
	return out
}
