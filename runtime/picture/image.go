// Package picture reads pictures and prepares them for a vision tower. [Open] and [Decode] read files within bounds;
// [Image.Resize], [Image.Planes] and [Image.Patches] compute what MNN's LLM engine hands to a tower, bit for bit;
// [Image.ResizeLibrary] is the resize that models are trained with, so that the difference can be measured. Formats other than
// JPEG, PNG, GIF, BMP and WebP are refused.
//
// The engine itself reads JPEG, PNG and BMP only and ignores the rotation that cameras record. Reading differs from it in one
// more respect: the pixels of a JPEG file may be off by a few steps of 255, because no two decoders round alike.
package picture

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Image is an upright picture of 8 bits per channel. Pix has three bytes per pixel, red, green and blue, row by row from the top.
type Image struct {
	Width, Height int
	Pix           []byte
}

// MaxPixels is the largest area of a picture that is read or made: 8192 x 8192, 192 MiB of bytes.
const MaxPixels = 1 << 26

// Size is the height and width of a picture, or of a grid, in the order that prompts have them.
type Size struct {
	Height, Width int
}

// Size returns the height and width of the picture.
func (im *Image) Size() Size { return Size{im.Height, im.Width} }

// String names both edges.
func (s Size) String() string { return fmt.Sprintf("height %d and width %d", s.Height, s.Width) }

// Check reports an error unless both edges are positive and the area is at most [MaxPixels].
func (s Size) Check() error { return s.within(MaxPixels) }

func (s Size) within(pixels int) error {
	switch {
	case s.Height <= 0 || s.Width <= 0:
		return fmt.Errorf("a picture of %v has no pixels: %w", s, tensor.ErrCorrupt)
	case s.Height > pixels/s.Width:
		return fmt.Errorf("a picture of %v has more than %d pixels; make it smaller first: %w", s, pixels, tensor.ErrUnsupported)
	}
	return nil
}

// Up rounds both edges up to multiples of unit, as the engine does for a tower with the input of whole pictures
// (`image_size_unit`).
func (s Size) Up(unit int) (Size, error) {
	if err := s.Check(); err != nil {
		return Size{}, err
	}
	up := Size{(s.Height + unit - 1) / unit * unit, (s.Width + unit - 1) / unit * unit}
	return up, up.Check()
}

// Round rounds both edges to the nearest multiples of unit, halves up, as the engine does for towers with the input `patches`:
// unit is two patches. An edge below half a unit is an error; the engine fails on it.
func (s Size) Round(unit int) (Size, error) {
	if err := s.Check(); err != nil {
		return Size{}, err
	}
	if 2*min(s.Height, s.Width) < unit {
		return Size{}, fmt.Errorf("a picture of %v is too small: the tower takes multiples of %d pixels: %w", s, unit,
			tensor.ErrUnsupported)
	}
	nearest := Size{(2*s.Height + unit) / (2 * unit) * unit, (2*s.Width + unit) / (2 * unit) * unit}
	return nearest, nearest.Check()
}

// Padded returns what the engine makes of a size for a tower that takes a fixed number of patches, most at most: both edges are rounded to
// cells, at least one, and while there are too many patches the longer edge gets one cell less.
func (s Size) Padded(c Cells, most int) (Size, error) {
	if err := s.Check(); err != nil {
		return Size{}, err
	}
	unit := c.Unit()
	s = Size{max(unit, (2*s.Height+unit)/(2*unit)*unit), max(unit, (2*s.Width+unit)/(2*unit)*unit)}
	for s.Height/c.Patch*(s.Width/c.Patch) > most {
		if s.Height >= s.Width {
			s.Height -= unit
		} else {
			s.Width -= unit
		}
	}
	return s, nil
}

// Fill returns the size that transformers gives a picture before the tower of Gemma 4: the largest multiples of unit in about its shape
// whose area is at most maxPixels, a multiple of a cell. A picture whose shorter edge would be below half a pixel is an error there.
func (s Size) Fill(unit, maxPixels int) (Size, error) {
	if err := s.Check(); err != nil {
		return Size{}, err
	}
	factor := math.Sqrt(float64(maxPixels) / float64(s.Height*s.Width))
	fill := Size{int(float64(factor*float64(s.Height))/float64(unit)) * unit, int(float64(factor*float64(s.Width))/float64(unit)) * unit}
	most := maxPixels / (unit * unit) * unit
	switch {
	case fill.Height == 0 && fill.Width == 0:
		return Size{}, fmt.Errorf("a picture of %v becomes none of at most %d pixels: %w", s, maxPixels, tensor.ErrUnsupported)
	case fill.Height == 0:
		fill = Size{unit, min(s.Width/s.Height*unit, most)}
	case fill.Width == 0:
		fill = Size{min(s.Height/s.Width*unit, most), unit}
	}
	return fill, fill.Check()
}

// Fit returns the size that transformers gives a picture of this size before a tower of the Qwen kind: multiples of unit (two
// patches), an area from minPixels to maxPixels, about the same shape. Callers of the engine have to pass this size, because the
// engine does not compute it. A picture that is more than 200 times as long as wide is an error, as in transformers.
func (s Size) Fit(unit, minPixels, maxPixels int) (Size, error) {
	if err := s.Check(); err != nil {
		return Size{}, err
	}
	h, w, u := float64(s.Height), float64(s.Width), float64(unit)
	if max(h, w)/min(h, w) > 200 {
		return Size{}, fmt.Errorf("a picture of %v is more than 200 times as long as wide: %w", s, tensor.ErrUnsupported)
	}
	fit := Size{int(math.RoundToEven(h/u)) * unit, int(math.RoundToEven(w/u)) * unit}
	switch area := fit.Height * fit.Width; {
	case area > maxPixels:
		shrink := math.Sqrt(h * w / float64(maxPixels))
		fit = Size{max(unit, int(h/shrink/u)*unit), max(unit, int(w/shrink/u)*unit)}
	case area < minPixels:
		grow := math.Sqrt(float64(minPixels) / (h * w))
		fit = Size{int(math.Ceil(h*grow/u)) * unit, int(math.Ceil(w*grow/u)) * unit}
	}
	return fit, fit.Check()
}
