package picture_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/runtime/picture"
)

// TestAnswers compares this package with what MNN, Pillow and transformers answered: testdata/answers.py explains the questions.
func TestAnswers(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "answers.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if n := check(t, data); n < 250 {
		t.Errorf("only %d answers", n)
	}
}

// check compares lines of a question and an answer with this package and returns their number.
func check(t *testing.T, lines []byte) (n int) {
	s := bufio.NewScanner(bytes.NewReader(lines))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		question, want, ok := strings.Cut(s.Text(), " = ")
		if !ok {
			t.Fatalf("a line without an answer: %s", question)
		}
		n++
		t.Run(question, func(t *testing.T) {
			words := strings.Fields(question)
			if words[0] == "open" || words[0] == "read" {
				compareFile(t, words[1], want)
				return
			}
			if got := answer(t, words); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	return n
}

func answer(t *testing.T, words []string) string {
	t.Helper()
	before := size(t, words[1])
	switch words[0] {
	case "engine":
		return digest(must(noise(before).Resize(size(t, words[2]))).Pix)
	case "planes":
		n := picture.Norm{Mean: floats(t, words[3]), Scale: floats(t, words[4])}
		var b []byte
		for _, v := range must(noise(before).Resize(size(t, words[2]))).Planes(n) {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return digest(b)
	case "fit":
		fit, err := before.Fit(number(t, words[2]), number(t, words[3]), number(t, words[4]))
		if err != nil {
			return "error"
		}
		return fmt.Sprintf("%dx%d", fit.Height, fit.Width)
	case "patches":
		p := must(noise(before).Patches(picture.Norm{Scale: [3]float32{1, 1, 1}}, picture.QwenCells(number(t, words[2]))))
		b := make([]byte, len(p.Pixels))
		for i, v := range p.Pixels {
			b[i] = byte(v)
		}
		return digest(b)
	}
	filter := map[string]picture.Filter{"lanczos": picture.Lanczos, "bilinear": picture.Bilinear, "bicubic": picture.Bicubic}[words[0]]
	return digest(must(noise(before).ResizeLibrary(size(t, words[2]), filter)).Pix)
}

// jpegSteps is how far the pixels of JPEG files may be from those of another decoder, in steps of 255: inverse cosine transforms may
// round differently by one, which the conversion to RGB multiplies by up to 1.8 before it rounds, too.
const jpegSteps = 3

// compareFile compares a file of testdata with the pixels that another program reads.
func compareFile(t *testing.T, name, want string) {
	t.Helper()
	im, err := picture.Open(filepath.Join("testdata", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	shape, pixels, _ := strings.Cut(want, " ")
	if im.Size() != size(t, shape) {
		t.Fatalf("%v, want %s", im.Size(), shape)
	}
	data := must(base64.StdEncoding.DecodeString(pixels))
	limit := 0
	if path.Ext(name) == ".jpg" {
		limit = jpegSteps
	}
	apart := 0
	for i, v := range data {
		apart = max(apart, int(v)-int(im.Pix[i]), int(im.Pix[i])-int(v))
	}
	if apart > limit {
		t.Errorf("the largest difference is %d, want at most %d", apart, limit)
	}
}

// noise is the picture of answers.py.
func noise(s picture.Size) *picture.Image {
	im := &picture.Image{Width: s.Width, Height: s.Height, Pix: make([]byte, 3*s.Width*s.Height)}
	for i := range im.Pix {
		n := uint32(i)
		im.Pix[i] = byte((n*2654435761 + n*n*97) >> 24)
	}
	return im
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func size(t *testing.T, s string) picture.Size {
	t.Helper()
	h, w, _ := strings.Cut(s, "x")
	return picture.Size{Height: number(t, h), Width: number(t, w)}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func floats(t *testing.T, s string) (v [3]float32) {
	t.Helper()
	for i, word := range strings.Split(s, ",") {
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			t.Fatal(err)
		}
		v[i] = float32(f)
	}
	return v
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
