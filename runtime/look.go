package runtime

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/prompt"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Prompt is what a text with pictures becomes.
type Prompt struct {
	Tokens []int32
	// Pictures are those that the tokens Config.ImagePad become, see [Session.Show].
	Pictures []Picture
}

// Read turns a prompt with pictures into tokens and rows, as the engine does: <img>FILE</img> names a picture. Each text between pictures is
// encoded on its own.
func (t *Tower) Read(ctx context.Context, text string) (*Prompt, error) {
	pieces, err := prompt.Parse(text)
	if err != nil {
		return nil, err
	}
	p := &Prompt{}
	c := t.pkg.Config
	size := picture.Size{Height: c.ImageSize, Width: c.ImageSize} // a picture without one has that of the picture before it
	for _, x := range pieces {
		switch x.Kind {
		case prompt.Text:
			p.Tokens = append(p.Tokens, t.pkg.Tokenizer.Encode(x.Text)...)
		case prompt.Picture:
			if x.Size != (picture.Size{}) {
				size = x.Size
			}
			if err := t.look(ctx, p, x.Text, &size); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%s: the package has no part that reads sound: %w", x.Text, tensor.ErrUnsupported)
		}
	}
	return p, nil
}

// look appends a picture to a prompt, and leaves in size what the engine makes of it.
func (t *Tower) look(ctx context.Context, p *Prompt, file string, size *picture.Size) error {
	c := t.pkg.Config
	marked := c.VisionStart >= 0 && c.VisionEnd >= 0
	if n := len(p.Tokens); !marked && n > 0 && p.Tokens[n-1] == c.ImagePad {
		return fmt.Errorf("%s follows another picture: the engine takes the two for one; put text between them, at least a space: %w",
			file, tensor.ErrUnsupported)
	}
	if t.tile > 0 {
		return t.lookAtTiles(ctx, p, file, size)
	}
	if t.grid {
		var err error
		if *size, err = gridSize(*size); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	} else if (*size != picture.Size{Height: c.ImageSize, Width: c.ImageSize}) {
		return fmt.Errorf("%s: <hw>%d,%d</hw>: the package reads pictures of %d,%d only: %w",
			file, size.Height, size.Width, c.ImageSize, c.ImageSize, tensor.ErrUnsupported)
	}
	im, err := picture.Open(file)
	if err != nil {
		return err
	}
	if im, err = im.Resize(*size); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	seen, err := t.See(ctx, im)
	if err != nil {
		return err
	}
	if marked {
		p.Tokens = append(p.Tokens, c.VisionStart)
	}
	for range len(seen.Rows) / c.HiddenSize {
		p.Tokens = append(p.Tokens, c.ImagePad)
	}
	if marked {
		p.Tokens = append(p.Tokens, c.VisionEnd)
	}
	p.Pictures = append(p.Pictures, seen)
	return nil
}

// See reads a picture of a size that the tower takes.
func (t *Tower) See(ctx context.Context, im *picture.Image) (Picture, error) {
	if t.tile > 0 {
		v, err := t.Cut(im, im.Size())
		if err != nil {
			return Picture{}, err
		}
		return t.Views(ctx, v)
	}
	norm := picture.Norm{Mean: t.pkg.Config.ImageMean, Scale: t.pkg.Config.ImageNorm}
	if !t.grid {
		return t.Picture(ctx, im.Planes(norm))
	}
	x, err := im.Patches(norm, gridPatch)
	if err != nil {
		return Picture{}, err
	}
	return t.Patches(ctx, x.Pixels, x.Grid.Height, x.Grid.Width)
}
