package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Tile is the edge of a tile in pixels, if the tower reads pictures in tiles; otherwise 0.
func (t *Tower) Tile() int { return t.tile }

// Patch is the edge of a patch in pixels, if the tower reads pictures as an overview and slices; otherwise 0.
func (t *Tower) Patch() int { return t.patch }

// divides reports whether a picture is given as several views.
func (t *Tower) divides() bool { return t.tile > 0 || t.patch > 0 }

// Cut returns the views of a picture that a prompt wants in a size, as the engine makes them.
func (t *Tower) Cut(im *picture.Image, s picture.Size) (*picture.Views, error) {
	if t.patch > 0 {
		return im.Slices(s, t.patch)
	}
	return im.Cut(s, t.tile, t.pkg.Config.ImageMaxSize)
}

// Views reads the views of a picture. The engine takes all tiles together and the whole alone, which with int8 activations affects rounding;
// otherwise they are read one by one, which takes less memory.
func (t *Tower) Views(ctx context.Context, v *picture.Views) (Picture, error) {
	if t.patch > 0 {
		return t.slices(ctx, v)
	}
	var pixels, all []float32
	for i, im := range v.Images {
		pixels = append(pixels, im.Planes(picture.Norm{Mean: t.pkg.Config.ImageMean, Scale: t.pkg.Config.ImageNorm})...)
		if t.together && i < len(v.Images)-2 {
			continue
		}
		seen, err := t.Picture(ctx, pixels)
		if err != nil {
			return Picture{}, err
		}
		pixels, all = pixels[:0], append(all, seen.Rows...)
	}
	return newPicture(all, 1, len(all)/t.pkg.Config.HiddenSize), nil
}

// Frame returns the tokens that the engine puts in place of a picture, each of whose views has so many rows.
func (t *Tower) Frame(v *picture.Views, rows int) ([]int32, error) {
	if t.patch > 0 {
		return t.frameSlices(v, rows), nil
	}
	c := t.pkg.Config
	first := func(text string) (int32, error) {
		ids := t.pkg.Tokenizer.Encode(text)
		if len(ids) == 0 {
			return 0, fmt.Errorf("%q has no tokens: %w", text, tensor.ErrCorrupt)
		}
		return ids[0], nil
	}
	end, err := first("\n")
	if err != nil {
		return nil, err
	}
	var out []int32
	view := func(word int32) {
		out = append(append(out, c.VisionStart, word), slices.Repeat([]int32{c.ImagePad}, rows)...)
	}
	for row := range v.Grid.Height {
		for column := range v.Grid.Width {
			word, err := first(fmt.Sprintf("<row_%d_col_%d>", row+1, column+1))
			if err != nil {
				return nil, err
			}
			view(word)
		}
		out = append(out, end)
	}
	if v.Grid.Height > 0 {
		out = append(out, end)
	}
	view(c.GlobalImage)
	return append(out, c.VisionEnd), nil
}

// lookAtViews is Look for a tower that is given several views.
func (t *Tower) lookAtViews(ctx context.Context, im *picture.Image, size picture.Size) (*Prompt, error) {
	v, err := t.Cut(im, size)
	if err != nil {
		return nil, err
	}
	seen, err := t.Views(ctx, v)
	if err != nil {
		return nil, err
	}
	tokens, err := t.Frame(v, seen.Width/len(v.Images))
	return &Prompt{tokens, []Picture{seen}}, err
}
