package picture_test

import (
	"errors"
	"testing"

	"github.com/llmexport/llmexport/runtime/picture"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	up := func(unit int) func(picture.Size) (picture.Size, error) {
		return func(s picture.Size) (picture.Size, error) { return s.Up(unit) }
	}
	round := func(unit int) func(picture.Size) (picture.Size, error) {
		return func(s picture.Size) (picture.Size, error) { return s.Round(unit) }
	}
	padded := func(s picture.Size) (picture.Size, error) {
		return s.Padded(picture.Cells{Patch: 16, Edge: 3, Frames: 1}, 2520)
	}
	fill := func(tokens int) func(picture.Size) (picture.Size, error) {
		return func(s picture.Size) (picture.Size, error) { return s.Fill(48, tokens*48*48) }
	}
	for _, c := range []struct {
		name string
		size func(picture.Size) (picture.Size, error)
		in   picture.Size
		want picture.Size
		err  error
	}{
		{"up to 1", up(1), picture.Size{Height: 5, Width: 7}, picture.Size{Height: 5, Width: 7}, nil},
		{"up to 32", up(32), picture.Size{Height: 32, Width: 33}, picture.Size{Height: 32, Width: 64}, nil},
		{"halves go up", round(28), picture.Size{Height: 70, Width: 42}, picture.Size{Height: 84, Width: 56}, nil},
		{"nearest", round(28), picture.Size{Height: 69, Width: 97}, picture.Size{Height: 56, Width: 84}, nil},
		{"at least one cell", round(32), picture.Size{Height: 16, Width: 20}, picture.Size{Height: 32, Width: 32}, nil},
		{"less than half a cell", round(32), picture.Size{Height: 15, Width: 200}, picture.Size{}, tensor.ErrUnsupported},
		{"height 0", round(28), picture.Size{Height: 0, Width: 200}, picture.Size{}, tensor.ErrCorrupt},
		{"negative", up(28), picture.Size{Height: 10, Width: -1}, picture.Size{}, tensor.ErrCorrupt},
		{"a cell at least", padded, picture.Size{Height: 5, Width: 72}, picture.Size{Height: 48, Width: 96}, nil},
		{"too many patches", padded, picture.Size{Height: 816, Width: 816}, picture.Size{Height: 768, Width: 816}, nil},
		{"too many columns", padded, picture.Size{Height: 48, Width: 20000}, picture.Size{Height: 48, Width: 13440}, nil},
		{"padded to no pixels", padded, picture.Size{Height: 0, Width: 48}, picture.Size{}, tensor.ErrCorrupt},
		{"filled", fill(280), picture.Size{Height: 1000, Width: 2000}, picture.Size{Height: 528, Width: 1104}, nil}, // these as transformers 5.23
		{"filled with less", fill(70), picture.Size{Height: 480, Width: 640}, picture.Size{Height: 336, Width: 432}, nil},
		{"enlarged", fill(280), picture.Size{Height: 60, Width: 30}, picture.Size{Height: 1104, Width: 528}, nil},
		{"wide", fill(280), picture.Size{Height: 10, Width: 3000}, picture.Size{Height: 48, Width: 13440}, nil},
		{"high", fill(70), picture.Size{Height: 4000, Width: 7}, picture.Size{Height: 3360, Width: 48}, nil},
		{"filled from nothing", fill(70), picture.Size{Height: 40, Width: 0}, picture.Size{}, tensor.ErrCorrupt},
		{"area beyond int", up(28), picture.Size{Height: 1 << 62, Width: 1 << 62}, picture.Size{}, tensor.ErrUnsupported},
	} {
		got, err := c.size(c.in)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, got, err, c.want, c.err)
		}
	}
	im := noise(picture.Size{Height: 28, Width: 42})
	if _, err := im.Patches(picture.Norm{}, picture.QwenCells(14)); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("an odd number of patches: %v", err)
	}
	if _, err := im.Resize(picture.Size{Height: 1 << 20, Width: 1 << 20}); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("a large size: %v", err)
	}
	if _, err := im.ResizeLibrary(picture.Size{Height: 8, Width: 8}, 0); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("the nearest pixel as a filter: %v", err)
	}
}
