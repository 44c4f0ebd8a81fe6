package verify

import (
	"context"
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/picture"
)

// larger is how many times as long as the edge of the tower the longer edge of a drawn picture is.
const larger = 3

// pixels returns a picture as the tower is given it, resized with a filter of the library, or by the engine's way with 0.
func (s *Subject) pixels(im *picture.Image, f picture.Filter) ([]float32, error) {
	c := s.Package.Config
	size := picture.Size{Height: c.ImageSize, Width: c.ImageSize}
	var err error
	if f == 0 {
		im, err = im.Resize(size)
	} else {
		im, err = im.ResizeLibrary(size, f)
	}
	if err != nil {
		return nil, err
	}
	return s.planes(im), nil
}

// planes are the pixels of a picture, normalised.
func (s *Subject) planes(im *picture.Image) []float32 {
	c := s.Package.Config
	return im.Planes(picture.Norm{Mean: c.ImageMean, Scale: c.ImageNorm})
}

// resize measures what the engine's resize costs: kl_resize is the divergence of the source with pictures that the engine has
// resized from the source with those that its library has, and rows_resize the distance of the rows. It returns a clause for the
// detail of the check, empty if the library's filter is not known or the tower reads pictures as they are.
func (p *picturePrompt) resize(ctx context.Context, s *Subject, t *runtime.Tower, value map[string]float64) (string, error) {
	if s.Source.Vision.Filter == 0 || p.grids != nil || t.Patch() > 0 {
		return "", nil
	}
	var all []float32
	for i, seen := range p.pictures {
		var err error
		if seen.views != nil {
			seen, err = s.newViews(t, i, 0)
		} else {
			seen.values, err = s.pixels(seen.image, 0)
		}
		if err != nil {
			return "", err
		}
		rows, err := seen.rows(ctx, s)
		if err != nil {
			return "", err
		}
		all = append(all, rows...)
	}
	logits, err := p.judged(ctx, s, all)
	if err != nil {
		return "", err
	}
	value["rows_resize"] = distanceOf(p.rows, all)
	if value["kl_resize"], _, err = s.compareLogits(ctx, len(p.tokens), p.logits, logits); err != nil {
		return "", err
	}
	return fmt.Sprintf("; the engine's resize of pictures %d times as large costs %.4g nats", larger, value["kl_resize"]), nil
}

// newViews draws a picture for a tower of tiles, two of which are side by side, or one above the other. It is resized with a filter of
// the library, in its steps, or by the engine's way with 0.
func (s *Subject) newViews(t *runtime.Tower, number int, f picture.Filter) (seenPicture, error) {
	im, size := drawn(t.Tile(), number), picture.Size{Height: t.Tile(), Width: 2 * t.Tile()}
	if number%2 == 1 {
		size.Height, size.Width = size.Width, size.Height
	}
	if f == 0 {
		v, err := t.Cut(im, size)
		return seenPicture{views: v}, err
	}
	large, err := im.ResizeLibrary(size, f)
	if err != nil {
		return seenPicture{}, err
	}
	v, err := t.Cut(large, size)
	if err != nil {
		return seenPicture{}, err
	}
	v.Images[len(v.Images)-1], err = large.ResizeLibrary(picture.Size{Height: t.Tile(), Width: t.Tile()}, f)
	return seenPicture{views: v}, err
}

// drawn is a picture for a tower of size x size pixels: smooth fields of colour, a frame with hard edges and fine lines, and
// another one for every number. The first is wide, the second tall.
func drawn(size, number int) *picture.Image {
	im := &picture.Image{Width: larger * size, Height: larger * size * 3 / 4}
	if number%2 == 1 {
		im.Width, im.Height = im.Height, im.Width
	}
	im.Pix = make([]byte, 3*im.Width*im.Height)
	step := 2 * math.Pi / float64(larger*size)
	for y := range im.Height {
		for x := range im.Width {
			for c := range 3 {
				sin, _ := kernel.Sincos(step * float64((c+2)*x+(number+1)*y))
				_, cos := kernel.Sincos(step * float64((number+3)*x-(c+1)*y))
				v := 127 + float64(80*sin) + float64(40*cos)
				switch {
				case x > im.Width/4 && x < im.Width/2 && y > im.Height/(3+number) && y < im.Height*3/4:
					v = float64(200 - 60*c - 50*number)
				case (x+number*y)%(7*larger) < larger:
					v = float64(30 + 70*c)
				}
				im.Pix[3*(y*im.Width+x)+c] = byte(math.Round(min(max(v, 0), 255)))
			}
		}
	}
	return im
}
