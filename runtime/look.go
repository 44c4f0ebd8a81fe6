package runtime

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// open looks at the picture in a file, and leaves in size what the engine makes of it.
func (t *Tower) open(ctx context.Context, file string, size *picture.Size) (*Prompt, error) {
	taken, err := t.taken(*size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	im, err := picture.Open(file)
	if err != nil {
		return nil, err
	}
	p, err := t.Look(ctx, im, *size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	*size = taken
	return p, nil
}

// taken returns what the engine makes of a size that the caller asks for.
func (t *Tower) taken(s picture.Size) (picture.Size, error) {
	switch {
	case t.padded > 0:
		return s.Padded(t.cells, t.padded)
	case t.cells.Patch > 0:
		return t.gridSize(s)
	case t.tile > 0:
		return s.Tiled(t.tile, t.pkg.Config.ImageMaxSize)
	case t.patch > 0:
		return s, s.CheckSlices(t.patch)
	}
	if n := t.pkg.Config.ImageSize; s != (picture.Size{Height: n, Width: n}) {
		return s, fmt.Errorf("<hw>%d,%d</hw>: the package reads pictures of %d,%d only: %w", s.Height, s.Width, n, n, tensor.ErrUnsupported)
	}
	return s, nil
}

// Look reads a picture after resizing it as the engine does, and returns it as a prompt: the rows of the picture, and the
// tokens in place of which they are put, with those around it.
func (t *Tower) Look(ctx context.Context, im *picture.Image, size picture.Size) (*Prompt, error) {
	if t.divides() {
		return t.lookAtViews(ctx, im, size)
	}
	size, err := t.taken(size)
	if err != nil {
		return nil, err
	}
	if im, err = im.Resize(size); err != nil {
		return nil, err
	}
	seen, err := t.See(ctx, im)
	if err != nil {
		return nil, err
	}
	c := t.pkg.Config
	p := &Prompt{Tokens: slices.Repeat([]int32{c.ImagePad}, seen.tokens()), Pictures: []Picture{seen}}
	if c.marked() {
		p.Tokens = append(append([]int32{c.VisionStart}, p.Tokens...), c.VisionEnd)
	}
	return p, nil
}

// Fit returns the size to which the model's library resizes a picture: the only one that the tower takes, or one of about the
// same shape and of at most most pixels.
func (t *Tower) Fit(s picture.Size, most int) (picture.Size, error) {
	c := t.pkg.Config
	switch {
	case t.padded > 0:
		unit := t.cells.Unit()
		most = min(most, t.padded*t.cells.Patch*t.cells.Patch)
		if c.ImageMaxPixels > 0 {
			most = min(most, c.ImageMaxPixels)
		}
		return s.Fill(unit, max(most/(unit*unit), 1)*unit*unit)
	case t.cells.Patch > 0:
		unit := t.cells.Unit()
		least := 4 * unit * unit
		if c.ImageMaxPixels > 0 {
			most = min(most, c.ImageMaxPixels)
			least = min(max(least, c.ImageMinPixels), most)
		}
		return s.Fit(unit, least, most)
	case t.tile > 0:
		s, err := s.Fit(t.tile, t.tile*t.tile, max(most, t.tile*t.tile))
		return picture.Size{Height: min(s.Height, c.ImageMaxSize), Width: min(s.Width, c.ImageMaxSize)}, err
	case t.patch > 0:
		return s.Whole(t.patch, most)
	}
	return picture.Size{Height: c.ImageSize, Width: c.ImageSize}, nil
}

// pad is the token in place of which rows of a picture or clip are put.
func (c *Config) pad(p *Picture) int32 {
	if p.clip {
		return c.AudioPad
	}
	return c.ImagePad
}

// pads reports whether rows can be put in place of a token.
func (c *Config) pads(t int32) bool { return c.Visual && t == c.ImagePad || c.Audio && t == c.AudioPad }

// marked reports whether pictures have a token before and after them.
func (c *Config) marked() bool { return c.VisionStart >= 0 && c.VisionEnd >= 0 }

// Around returns what the model's library writes in a conversation before and after a picture, or a clip with this number.
func (c *Config) Around(q *Prompt, clip int) (before, after string) {
	o := &c.LLMExport
	if !q.Clip() {
		return o.BeforePicture, o.AfterPicture
	}
	number := strings.NewReplacer("{n}", strconv.Itoa(clip))
	return number.Replace(o.BeforeClip), number.Replace(o.AfterClip)
}

// numbered returns the tokens of a picture that follows others in a prompt. Engines count pictures from the first one that they read, the
// library from the first one of a conversation.
func (p *Package) numbered(to, q *Prompt) []int32 {
	if v := p.Visual(); v == nil || !v.reads(mnn.SizesInput) || len(q.Pictures) == 0 || q.Clip() {
		return q.Tokens
	}
	n := 0
	for i := range to.Pictures {
		if !to.Pictures[i].clip {
			n++
		}
	}
	return append(p.number(n), q.Tokens[len(p.number(0)):]...)
}

// Append appends q to p. Two pictures or two clips without a token between them are a tensor.ErrUnsupported.
func (p *Package) Append(to, q *Prompt) error {
	if n := len(to.Tokens); n > 0 && len(to.Pictures) > 0 && len(q.Pictures) > 0 && to.Tokens[n-1] == q.Tokens[0] && p.Config.pads(q.Tokens[0]) {
		what := "picture"
		if q.Pictures[0].clip {
			what = "clip"
		}
		return fmt.Errorf("a %s follows another one, and the engine takes the two for one; put text between them, at least a space: %w",
			what, tensor.ErrUnsupported)
	}
	to.Tokens, to.Pictures = append(to.Tokens, p.numbered(to, q)...), append(to.Pictures, q.Pictures...)
	return nil
}

// CheckPictures reports an error unless each token in place of which rows are put has a row. A text that spells the token would
// take one from a picture.
func (p *Package) CheckPictures(q *Prompt) error {
	if len(q.Pictures) == 0 {
		return nil
	}
	left := map[int32]int{}
	for i := range q.Pictures {
		left[p.Config.pad(&q.Pictures[i])] += q.Pictures[i].tokens()
	}
	for _, t := range q.Tokens {
		if p.Config.pads(t) {
			left[t]--
		}
	}
	for pad, n := range left {
		if n != 0 {
			return fmt.Errorf("a text with pictures or clips must not contain %q, the token that they become: %w",
				p.Tokenizer.Decode([]int32{pad}), tensor.ErrUnsupported)
		}
	}
	return nil
}

// See reads a picture of a size that the tower takes.
func (t *Tower) See(ctx context.Context, im *picture.Image) (Picture, error) {
	if t.divides() {
		v, err := t.Cut(im, im.Size())
		if err != nil {
			return Picture{}, err
		}
		return t.Views(ctx, v)
	}
	norm := picture.Norm{Mean: t.pkg.Config.ImageMean, Scale: t.pkg.Config.ImageNorm}
	if t.cells.Patch == 0 {
		return t.Picture(ctx, im.Planes(norm))
	}
	x, err := im.Patches(norm, t.cells)
	if err != nil {
		return Picture{}, err
	}
	return t.Patches(ctx, x.Pixels, x.Grid.Height, x.Grid.Width)
}
