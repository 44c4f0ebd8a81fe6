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
	// Rows are those that the tokens Config.ImagePad become, see [Session.Show].
	Rows []float32
}

// Read turns a prompt with pictures into tokens and rows, as the engine does: <img>FILE</img> names a picture. Each text between pictures is
// encoded on its own.
func (t *Tower) Read(ctx context.Context, text string) (*Prompt, error) {
	pieces, err := prompt.Parse(text)
	if err != nil {
		return nil, err
	}
	p := &Prompt{}
	for _, x := range pieces {
		switch x.Kind {
		case prompt.Text:
			p.Tokens = append(p.Tokens, t.pkg.Tokenizer.Encode(x.Text)...)
		case prompt.Picture:
			if err := t.look(ctx, p, x); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%s: the package has no part that reads sound: %w", x.Text, tensor.ErrUnsupported)
		}
	}
	return p, nil
}

// look appends a picture to a prompt.
func (t *Tower) look(ctx context.Context, p *Prompt, x prompt.Piece) error {
	c := t.pkg.Config
	size := picture.Size{Height: c.ImageSize, Width: c.ImageSize}
	if x.Size != (picture.Size{}) && x.Size != size {
		return fmt.Errorf("%s: <hw>%d,%d</hw>: the package reads pictures of %d,%d only: %w",
			x.Text, x.Size.Height, x.Size.Width, size.Height, size.Width, tensor.ErrUnsupported)
	}
	im, err := picture.Open(x.Text)
	if err != nil {
		return err
	}
	if im, err = im.Resize(size); err != nil {
		return fmt.Errorf("%s: %w", x.Text, err)
	}
	rows, err := t.Rows(ctx, im.Planes(picture.Norm{Mean: c.ImageMean, Scale: c.ImageNorm}))
	if err != nil {
		return err
	}
	marked := c.VisionStart >= 0 && c.VisionEnd >= 0
	if n := len(p.Tokens); !marked && n > 0 && p.Tokens[n-1] == c.ImagePad {
		return fmt.Errorf("%s follows another picture: the engine takes the two for one; put text between them, at least a space: %w",
			x.Text, tensor.ErrUnsupported)
	}
	if marked {
		p.Tokens = append(p.Tokens, c.VisionStart)
	}
	for range len(rows) / c.HiddenSize {
		p.Tokens = append(p.Tokens, c.ImagePad)
	}
	if marked {
		p.Tokens = append(p.Tokens, c.VisionEnd)
	}
	p.Rows = append(p.Rows, rows...)
	return nil
}
