package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"os"

	"github.com/bep/imagemeta"
	"golang.org/x/image/bmp"
	"golang.org/x/image/webp"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxBytes bounds a file: a BMP file of MaxPixels with 4 bytes each, and its header.
const maxBytes = 4*MaxPixels + 1<<20

// Open reads a picture from a file, see [Decode].
func Open(path string) (*Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	im, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return im, nil
}

// Decode reads a JPEG, PNG, GIF, BMP or WebP file. The picture is turned as its EXIF orientation demands. Of 16 bits per channel
// the upper 8 remain, CMYK becomes RGB, transparency is dropped as the engine drops it, and of an animated GIF the first frame is
// read. Damaged files are [tensor.ErrCorrupt]. Other formats, animated WebP and more than [MaxPixels] are
// [tensor.ErrUnsupported]; the latter before memory for pixels is allocated.
func Decode(r io.Reader) (*Image, error) { return DecodeWithin(r, MaxPixels) }

// DecodeWithin is [Decode] for pictures of at most so many pixels.
func DecodeWithin(r io.Reader, pixels int) (*Image, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("the picture has more than %d bytes: %w", maxBytes, tensor.ErrUnsupported)
	}
	f, err := detect(data)
	if err != nil {
		return nil, err
	}
	config, err := f.config(bytes.NewReader(data))
	if err != nil {
		return nil, f.classify(err)
	}
	size := Size{config.Height, config.Width}
	if err := size.within(pixels); err != nil {
		return nil, err
	}
	decoded, err := f.pixels(bytes.NewReader(data))
	if err != nil {
		return nil, f.classify(err)
	}
	im, err := convert(decoded, size, f)
	if err != nil {
		return nil, err
	}
	return im.upright(orientation(data, f)), nil
}

// format is a kind of file. meta is 0 for those without EXIF data.
type format struct {
	name   string
	meta   imagemeta.ImageFormat
	config func(io.Reader) (image.Config, error)
	pixels func(io.Reader) (image.Image, error)
}

// detect tells the format by the first bytes.
func detect(data []byte) (format, error) {
	at := func(offset int, magic string) bool {
		return len(data) >= offset && bytes.HasPrefix(data[offset:], []byte(magic))
	}
	switch {
	case len(data) == 0:
		return format{}, fmt.Errorf("the picture has no bytes: %w", tensor.ErrCorrupt)
	case at(0, "\xff\xd8\xff"):
		return format{"JPEG", imagemeta.JPEG, jpeg.DecodeConfig, jpeg.Decode}, nil
	case at(0, "\x89PNG\r\n\x1a\n"):
		return format{"PNG", imagemeta.PNG, png.DecodeConfig, png.Decode}, nil
	case at(0, "GIF87a"), at(0, "GIF89a"):
		return format{"GIF", 0, gif.DecodeConfig, gif.Decode}, nil
	case at(0, "BM"):
		return format{"BMP", 0, bmp.DecodeConfig, bmp.Decode}, nil
	case at(0, "RIFF") && at(8, "WEBPVP8X") && len(data) > 20 && data[20]&2 != 0:
		return format{}, fmt.Errorf("an animated WebP picture; save one frame as a still picture: %w", tensor.ErrUnsupported)
	case at(0, "RIFF") && at(8, "WEBP"):
		return format{"WebP", imagemeta.WebP, webp.DecodeConfig, webp.Decode}, nil
	case at(4, "ftyp"):
		return format{}, fmt.Errorf("a HEIC or AVIF picture, or a video; convert a picture to JPEG or PNG: %w", tensor.ErrUnsupported)
	}
	return format{}, fmt.Errorf("not a JPEG, PNG, GIF, BMP or WebP picture: %w", tensor.ErrUnsupported)
}

// classify tells what a decoder cannot do from what is damaged.
func (f format) classify(err error) error {
	_, ofJPEG := errors.AsType[jpeg.UnsupportedError](err)
	_, ofPNG := errors.AsType[png.UnsupportedError](err)
	if ofJPEG || ofPNG || errors.Is(err, bmp.ErrUnsupported) {
		return fmt.Errorf("the %s picture is of an unusual kind (%v); save it as RGB with 8 bits per channel: %w", f.name, err,
			tensor.ErrUnsupported)
	}
	return fmt.Errorf("the %s picture is damaged: %v: %w", f.name, err, tensor.ErrCorrupt)
}

// orientation returns the EXIF orientation, 1 to 8; it is 1 where the file has none that can be read.
func orientation(data []byte, f format) int {
	if f.meta == 0 {
		return 1
	}
	o := 1
	_, err := imagemeta.Decode(imagemeta.Options{
		R: bytes.NewReader(data), ImageFormat: f.meta, Sources: imagemeta.EXIF,
		ShouldHandleTag: func(tag imagemeta.TagInfo) bool { return tag.Namespace == "IFD0" && tag.Tag == "Orientation" },
		HandleTag: func(tag imagemeta.TagInfo) error {
			if v, ok := tag.Value.(uint16); ok && 1 <= v && v <= 8 {
				o = int(v)
			}
			return imagemeta.ErrStopWalking
		},
	})
	if err != nil {
		return 1
	}
	return o
}

// upright returns the picture turned by an EXIF orientation.
func (im *Image) upright(orientation int) *Image {
	w, h := im.Width, im.Height
	// The pixel of the result at x, y is number start + x*right + y*down of the source.
	turn := [...]struct{ start, right, down int }{
		1: {0, 1, w},
		2: {w - 1, -1, w},
		3: {w*h - 1, -1, -w},
		4: {w * (h - 1), 1, -w},
		5: {0, w, 1},
		6: {w * (h - 1), -w, 1},
		7: {w*h - 1, -w, -1},
		8: {w - 1, w, -1},
	}[orientation]
	if orientation == 1 {
		return im
	}
	out := &Image{Width: w, Height: h, Pix: make([]byte, len(im.Pix))}
	if orientation >= 5 {
		out.Width, out.Height = h, w
	}
	for y := range out.Height {
		for x := range out.Width {
			from := turn.start + x*turn.right + y*turn.down
			copy(out.Pix[3*(y*out.Width+x):][:3], im.Pix[3*from:])
		}
	}
	return out
}
