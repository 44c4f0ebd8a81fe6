package picture

import (
	"fmt"
	"math"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// Filter is a filter of Pillow, by the number that `resample` has in preprocessor_config.json.
type Filter int

// The filters of models that are exported.
const (
	Lanczos  Filter = 1
	Bilinear Filter = 2
	Bicubic  Filter = 3
)

// Check reports an error for a number that is none of the filters.
func (f Filter) Check() error {
	if f < Lanczos || f > Bicubic {
		return fmt.Errorf("resample %d is not Lanczos (1), bilinear (2) or bicubic (3): %w", int(f), tensor.ErrUnsupported)
	}
	return nil
}

// support is the radius of the filter in pixels.
func (f Filter) support() float64 { return [...]float64{Lanczos: 3, Bilinear: 1, Bicubic: 2}[f] }

// weight is the filter at distance x.
func (f Filter) weight(x float64) float64 {
	switch x = math.Abs(x); {
	case x >= f.support():
		return 0
	case f == Lanczos:
		return float64(sinc(x) * sinc(x/3))
	case f == Bilinear:
		return 1 - x
	case x < 1: // Keys' cubic with a = -0.5
		return float64((float64(1.5*x)-2.5)*x*x) + 1
	default:
		return float64((float64((float64((x-5)*x)+8)*x) - 4) * -0.5)
	}
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// fraction is the number of bits that Pillow gives the weights after the point: the product of a weight, which is below 2, and a
// byte fits 32 bits.
const fraction = 22

// window holds the integer weights of the source pixels from start on.
type window struct {
	start   int
	weights []int32
}

// windows returns the window of each of out pixels on an edge of in pixels. The filter is widened where the edge shrinks.
func (f Filter) windows(in, out int) []window {
	scale := float64(in) / float64(out)
	widen := max(scale, 1)
	radius := float64(f.support() * widen)
	list := make([]window, out)
	for i := range list {
		centre := float64((float64(i) + 0.5) * scale)
		start := max(int(centre-radius+0.5), 0)
		end := min(int(centre+radius+0.5), in)
		weights, sum := make([]float64, end-start), 0.0
		for j := range weights {
			weights[j] = f.weight((float64(start+j) - centre + 0.5) * (1 / widen))
			sum += weights[j]
		}
		list[i] = window{start, make([]int32, len(weights))}
		for j, w := range weights {
			if sum != 0 {
				w /= sum
			}
			list[i].weights[j] = int32(math.Round(w * (1 << fraction)))
		}
	}
	return list
}

// ResizeLibrary returns the picture scaled to s as Pillow 13 does with a filter against aliasing, bit for bit: this is what
// transformers computes before it normalizes pixels. Older releases of Pillow, and torch, may round a pixel to the next step of
// 255.
func (im *Image) ResizeLibrary(s Size, f Filter) (*Image, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	columns, rows := f.windows(im.Width, s.Width), f.windows(im.Height, s.Height)
	// The first pass rounds to bytes, so the order matters.
	if less := im.Height - s.Height; less > 0 && less > 2*(im.Width-s.Width) {
		return im.filterColumns(rows).filterRows(columns), nil
	}
	if err := (Size{im.Height, s.Width}).Check(); err != nil {
		return nil, err
	}
	return im.filterRows(columns).filterColumns(rows), nil
}

// filterRows scales the width.
func (im *Image) filterRows(columns []window) *Image {
	out := &Image{Width: len(columns), Height: im.Height, Pix: make([]byte, 3*im.Height*len(columns))}
	for y := range im.Height {
		src, dst := im.row(y), out.row(y)
		for x, c := range columns {
			for b := range 3 {
				sum := int32(1) << (fraction - 1)
				for j, w := range c.weights {
					sum += w * int32(src[3*(c.start+j)+b])
				}
				dst[3*x+b] = clip(sum)
			}
		}
	}
	return out
}

// filterColumns scales the height.
func (im *Image) filterColumns(rows []window) *Image {
	out := &Image{Width: im.Width, Height: len(rows), Pix: make([]byte, 3*im.Width*len(rows))}
	sums := make([]int32, 3*im.Width)
	for y, r := range rows {
		for i := range sums {
			sums[i] = 1 << (fraction - 1)
		}
		for j, w := range r.weights {
			for i, v := range im.row(r.start + j) {
				sums[i] += w * int32(v)
			}
		}
		dst := out.row(y)
		for i, sum := range sums {
			dst[i] = clip(sum)
		}
	}
	return out
}

// clip rounds a sum to a byte.
func clip(sum int32) byte { return byte(max(min(sum>>fraction, 255), 0)) }
