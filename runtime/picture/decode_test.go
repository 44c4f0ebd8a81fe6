package picture_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "files", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pngOf is the head of a PNG file of a size, followed by its end.
func pngOf(width, height uint32) []byte {
	b := []byte("\x89PNG\r\n\x1a\n")
	chunk := func(kind string, data []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
		body := append([]byte(kind), data...)
		b = binary.BigEndian.AppendUint32(append(b, body...), crc32.ChecksumIEEE(body))
	}
	chunk("IHDR", append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height), 8, 2, 0, 0, 0))
	chunk("IEND", nil)
	return b
}

// jpegOf is a JPEG file whose header names another size.
func jpegOf(t *testing.T, width, height uint16) []byte {
	t.Helper()
	b := bytes.Clone(file(t, "progressive.jpg"))
	at := bytes.Index(b, []byte{0xff, 0xc2})
	if at < 0 {
		t.Fatal("no frame header")
	}
	binary.BigEndian.PutUint16(b[at+5:], height)
	binary.BigEndian.PutUint16(b[at+7:], width)
	return b
}

func TestRefused(t *testing.T) {
	t.Parallel()
	cut := func(name string) []byte { b := file(t, name); return b[:2*len(b)/3] }
	badHeader := bytes.Clone(file(t, "rgba.png"))
	badHeader[18]++
	gifBomb := bytes.Clone(file(t, "still.gif"))
	copy(gifBomb[6:], "\xff\xff\xff\xff")
	bmpBomb := bytes.Clone(file(t, "rgb.bmp"))
	copy(bmpBomb[18:], "\x00\x00\x00\x40\x00\x00\x00\x40")
	webpBomb := bytes.Clone(file(t, "lossyalpha.webp"))
	copy(webpBomb[24:], "\x1f\x4e\x00\x1f\x4e\x00")
	for _, c := range []struct {
		name string
		data []byte
		err  error
		part string
	}{
		{"empty", nil, tensor.ErrCorrupt, "no bytes"},
		{"text", []byte("a text"), tensor.ErrUnsupported, "not a JPEG, PNG, GIF, BMP or WebP picture"},
		{"TIFF", file(t, "drawing.tif"), tensor.ErrUnsupported, "not a JPEG, PNG, GIF, BMP or WebP picture"},
		{"HEIC", []byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00"), tensor.ErrUnsupported, "HEIC"},
		{"animated WebP", file(t, "moving.webp"), tensor.ErrUnsupported, "animated WebP"},
		{"arithmetic JPEG", file(t, "arithmetic.jpg"), tensor.ErrUnsupported, "JPEG"},
		{"half a JPEG", cut("444.jpg"), tensor.ErrCorrupt, "JPEG picture is damaged"},
		{"half a PNG", cut("rgba.png"), tensor.ErrCorrupt, "PNG picture is damaged"},
		{"half a GIF", cut("still.gif"), tensor.ErrCorrupt, "GIF picture is damaged"},
		{"half a BMP", cut("rgb.bmp"), tensor.ErrCorrupt, "BMP picture is damaged"},
		{"half a WebP", cut("lossless.webp"), tensor.ErrCorrupt, "WebP picture is damaged"},
		{"flipped bit", badHeader, tensor.ErrCorrupt, "PNG picture is damaged"},
		{"bomb of PNG", pngOf(100_000, 100_000), tensor.ErrUnsupported, "more than 67108864 pixels"},
		{"bomb of JPEG", jpegOf(t, 65_535, 65_535), tensor.ErrUnsupported, "more than 67108864 pixels"},
		{"bomb of GIF", gifBomb, tensor.ErrUnsupported, "more than 67108864 pixels"},
		{"bomb of BMP", bmpBomb, tensor.ErrUnsupported, "more than 67108864 pixels"},
		{"bomb of WebP", webpBomb, tensor.ErrUnsupported, "more than 67108864 pixels"},
		{"PNG of width 0", pngOf(0, 5), tensor.ErrCorrupt, ""},
		{"JPEG of width 0", jpegOf(t, 0, 5), tensor.ErrCorrupt, ""},
		{"JPEG of height 0", jpegOf(t, 5, 0), tensor.ErrCorrupt, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			im, err := picture.Decode(bytes.NewReader(c.data))
			if !errors.Is(err, c.err) || im != nil {
				t.Fatalf("%v, %v, want %v", im, err, c.err)
			}
			if !strings.Contains(err.Error(), c.part) {
				t.Errorf("%q lacks %q", err, c.part)
			}
		})
	}
	if _, err := picture.Open(filepath.Join(t.TempDir(), "none.png")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestFirstFrame checks a GIF whose first frame covers a part of its screen.
func TestFirstFrame(t *testing.T) {
	t.Parallel()
	palette := color.Palette{color.RGBA{9, 8, 7, 255}, color.RGBA{200, 100, 50, 255}}
	part := image.NewPaletted(image.Rect(2, 1, 4, 3), palette)
	part.Pix = []byte{1, 0, 0, 1}
	full := image.NewPaletted(image.Rect(0, 0, 5, 4), palette)
	var b bytes.Buffer
	frames := &gif.GIF{Image: []*image.Paletted{part, full}, Delay: []int{1, 1}, Config: image.Config{Width: 5, Height: 4}}
	if err := gif.EncodeAll(&b, frames); err != nil {
		t.Fatal(err)
	}
	im := must(picture.Decode(&b))
	want := make([]byte, 60)
	copy(want[3*(1*5+2):], []byte{200, 100, 50, 9, 8, 7})
	copy(want[3*(2*5+2):], []byte{9, 8, 7, 200, 100, 50})
	if im.Size() != (picture.Size{Height: 4, Width: 5}) || !bytes.Equal(im.Pix, want) {
		t.Errorf("%v %v", im.Size(), im.Pix)
	}
}

func FuzzDecode(f *testing.F) {
	list, err := filepath.Glob(filepath.Join("testdata", "files", "*"))
	if err != nil || len(list) < 30 {
		f.Fatalf("%d seeds, %v", len(list), err)
	}
	for _, name := range list {
		f.Add(file(f, filepath.Base(name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Large pictures are right, but take long: mutated headers would make most runs seconds long.
		for _, config := range []func() (image.Config, error){
			func() (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(data)) },
			func() (image.Config, error) { return png.DecodeConfig(bytes.NewReader(data)) },
			func() (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(data)) },
		} {
			if c, err := config(); err == nil && c.Width*c.Height > 1<<16 && c.Width*c.Height <= picture.MaxPixels {
				t.Skip()
			}
		}
		im, err := picture.Decode(bytes.NewReader(data))
		if err != nil {
			if im != nil || !errors.Is(err, tensor.ErrCorrupt) && !errors.Is(err, tensor.ErrUnsupported) {
				t.Fatalf("%v, %v", im, err)
			}
			return
		}
		if err := im.Size().Check(); err != nil || len(im.Pix) != 3*im.Width*im.Height {
			t.Fatalf("%v: %d bytes, %v", im.Size(), len(im.Pix), err)
		}
	})
}
