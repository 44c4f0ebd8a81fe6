package picture_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llmexport/llmexport/runtime/picture"
)

var update = flag.Bool("update", false, "rewrite the table of docs/internals/engine-picture.md")

// TestDistances measures how far the engine's resize is from the filters of the library, which is the table of the documentation.
func TestDistances(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	var b bytes.Buffer
	b.WriteString("| from, to | bilinear | bicubic | Lanczos | library: bilinear against bicubic |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range [][2]picture.Size{
		{{Height: 1512, Width: 2016}, {Height: 756, Width: 1008}},
		{{Height: 960, Width: 1280}, {Height: 420, Width: 420}},
		{{Height: 960, Width: 1280}, {Height: 448, Width: 616}},
		{{Height: 512, Width: 512}, {Height: 378, Width: 378}},
		{{Height: 768, Width: 1024}, {Height: 896, Width: 896}},
		{{Height: 384, Width: 384}, {Height: 512, Width: 512}},
	} {
		im := drawing(c[0])
		engine := must(im.Resize(c[1]))
		bilinear, bicubic := must(im.ResizeLibrary(c[1], picture.Bilinear)), must(im.ResizeLibrary(c[1], picture.Bicubic))
		lanczos := must(im.ResizeLibrary(c[1], picture.Lanczos))
		fmt.Fprintf(&b, "| %d x %d, %d x %d | %.1f | %.1f | %.1f | %.1f |\n", c[0].Height, c[0].Width, c[1].Height, c[1].Width,
			distance(engine, bilinear), distance(engine, bicubic), distance(engine, lanczos), distance(bilinear, bicubic))
	}
	name := filepath.Join("..", "..", "docs", "internals", "engine-picture.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte("<!-- measured -->\n"))
	old, after, end := bytes.Cut(rest, []byte("<!-- end -->\n"))
	if !ok || !end {
		t.Fatalf("%s has no place for the table", name)
	}
	switch {
	case *update:
		page = bytes.Join([][]byte{before, []byte("<!-- measured -->\n"), b.Bytes(), []byte("<!-- end -->\n"), after}, nil)
		if err := os.WriteFile(name, page, 0o644); err != nil {
			t.Fatal(err)
		}
	case !bytes.Equal(old, b.Bytes()):
		t.Errorf("%s has\n%s, want\n%s; run go test ./runtime/picture -run TestDistances -update", name, old, b.Bytes())
	}
}

// distance is the root of the mean squared difference, in steps of 255.
func distance(a, b *picture.Image) float64 {
	sum := 0.0
	for i, v := range a.Pix {
		d := float64(v) - float64(b.Pix[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(a.Pix)))
}

// drawing is a picture like a photograph, in that details have less contrast the smaller they are, with strokes as of letters.
func drawing(s picture.Size) *picture.Image {
	values := make([]float64, 3*s.Width*s.Height)
	for cell := 1; cell <= 256; cell *= 2 {
		detail := noise(picture.Size{Height: s.Height/cell + 2, Width: s.Width/cell + 2})
		contrast := math.Sqrt(float64(cell)) / 24
		for i, v := range must(detail.ResizeLibrary(s, picture.Bicubic)).Pix {
			values[i] += contrast * (float64(v) - 128)
		}
	}
	im := &picture.Image{Width: s.Width, Height: s.Height, Pix: make([]byte, len(values))}
	for i, v := range values {
		x, y := i/3%s.Width, i/3/s.Width
		if y/40%4 == 1 && x/12%5 < 3 && (x+y/3)%6 < 2 {
			v = -110
		}
		im.Pix[i] = byte(math.Round(max(min(v+128, 255), 0)))
	}
	return im
}
