package picture

import (
	"fmt"
	"image"
	"image/color"

	"github.com/bep/imagemeta"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// convert returns the pixels of a decoded file of the given size. A frame that covers a part of it lies on black.
func convert(src image.Image, size Size, f format) (*Image, error) {
	out := &Image{Width: size.Width, Height: size.Height, Pix: make([]byte, 3*size.Width*size.Height)}
	b := src.Bounds()
	if !b.In(image.Rect(0, 0, size.Width, size.Height)) {
		return nil, fmt.Errorf("the %s picture has pixels outside of its %s: %w", f.name, size, tensor.ErrCorrupt)
	}
	row, err := reader(src, f)
	if err != nil {
		return nil, err
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		row(y-b.Min.Y, out.row(y)[3*b.Min.X:3*b.Max.X])
	}
	return out, nil
}

// reader returns a function that writes row y of the bounds of a decoded picture as RGB. Transparency is dropped, not blended.
func reader(src image.Image, f format) (func(y int, dst []byte), error) {
	switch m := src.(type) {
	case *image.YCbCr:
		return ycc(m, f.meta == imagemeta.WebP), nil
	case *image.NYCbCrA: // of WebP only
		return ycc(&m.YCbCr, true), nil
	case *image.Gray:
		return samples(m.Pix, m.Stride, 1, 0, 0, 0), nil
	case *image.Gray16:
		return samples(m.Pix, m.Stride, 2, 0, 0, 0), nil
	case *image.RGBA:
		return samples(m.Pix, m.Stride, 4, 0, 1, 2), nil
	case *image.NRGBA:
		return samples(m.Pix, m.Stride, 4, 0, 1, 2), nil
	case *image.RGBA64:
		return samples(m.Pix, m.Stride, 8, 0, 2, 4), nil
	case *image.NRGBA64:
		return samples(m.Pix, m.Stride, 8, 0, 2, 4), nil
	case *image.Paletted:
		return paletted(m), nil
	case *image.CMYK:
		return cmyk(m), nil
	}
	return nil, fmt.Errorf("internal error: a picture was decoded to %T", src)
}

// samples reads interleaved channels: width bytes per pixel, with the upper bytes of red, green and blue at r, g and b.
func samples(pix []byte, stride, width, r, g, b int) func(int, []byte) {
	return func(y int, dst []byte) {
		src := pix[y*stride:]
		for i := range len(dst) / 3 {
			p := src[i*width:]
			dst[3*i], dst[3*i+1], dst[3*i+2] = p[r], p[g], p[b]
		}
	}
}

func paletted(m *image.Paletted) func(int, []byte) {
	var table [256][3]byte
	for i, c := range m.Palette {
		n := color.NRGBAModel.Convert(c).(color.NRGBA)
		table[i] = [3]byte{n.R, n.G, n.B}
		// The conversion loses the colour of transparent entries.
		if full, ok := c.(color.NRGBA); ok {
			table[i] = [3]byte{full.R, full.G, full.B}
		}
	}
	return func(y int, dst []byte) {
		for i := range len(dst) / 3 {
			copy(dst[3*i:3*i+3], table[m.Pix[y*m.Stride+i]][:])
		}
	}
}

func cmyk(m *image.CMYK) func(int, []byte) {
	return func(y int, dst []byte) {
		src := m.Pix[y*m.Stride:]
		for i := range len(dst) / 3 {
			p := src[4*i:]
			dst[3*i], dst[3*i+1], dst[3*i+2] = color.CMYKToRGB(p[0], p[1], p[2], p[3])
		}
	}
}
