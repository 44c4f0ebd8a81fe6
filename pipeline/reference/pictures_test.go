package reference_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/pipeline/reference"
	"github.com/llmexport/llmexport/pipeline/source"
	"github.com/llmexport/llmexport/pipeline/stage/stagetest"
	"github.com/llmexport/llmexport/runtime/picture"
)

// Towers make the rows, and models with them the logits, that transformers computed.
func TestPictures(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../arch/testdata/*/pictures.safetensors")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d checkpoints: %v", len(files), err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		if testing.Short() && strings.HasPrefix(filepath.Base(dir), "minicpmv-") {
			continue // thousands of patches
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			want, err := stagetest.ReadPictures(file)
			if err != nil {
				t.Fatal(err)
			}
			src, err := source.Open(t.Context(), source.Origin{Dir: dir}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			tower, err := forward.NewTower(src.Model.Towers[0], src.Weights, 2)
			if err != nil {
				t.Fatal(err)
			}
			var rows []float32
			var grids [][2]int
			for i, image := range want.Images {
				x, err := seen(t, src, tower, image, want.Sizes, i)
				if err != nil {
					t.Fatal(err)
				}
				if src.Model.Towers[0].Slices != nil {
					rows = append(rows, x...)
					continue
				}
				if src.Model.Towers[0].Grid {
					edge := src.Model.Towers[0].Patch * src.Model.Towers[0].Cell
					grids = append(grids, [2]int{want.Sizes[i][0] / edge, want.Sizes[i][1] / edge})
				} else if n := src.Model.Towers[0].Rows() * src.Decoder.Hidden; len(x)%n != 0 || want.Sizes == nil && len(x) != n {
					t.Fatalf("%d values for a picture, want %d", len(x), n)
				}
				rows = append(rows, x...)
			}
			near(t, "rows", want.Rows, rows, 1e-5)
			m, err := reference.New(src.Decoder, src.Weights, reference.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			h, err := m.HiddenWith(t.Context(), want.IDs, src.Pictures.Pad, rows, grids)
			if err != nil {
				t.Fatal(err)
			}
			logits := make([]float32, len(want.Logits))
			if err := m.Logits(t.Context(), logits, h); err != nil {
				t.Fatal(err)
			}
			near(t, "logits", want.Logits, logits, 1e-5)
		})
	}
}

// seen are the rows of a picture.
func seen(t *testing.T, src *source.Source, tower *forward.Tower, image []byte, sizes [][2]int, i int) ([]float32, error) {
	norm := picture.Norm{Mean: src.Pictures.Mean, Scale: src.Pictures.Norm}
	if tile := src.Model.Towers[0]; tile.Tiles != nil {
		h, w := sizes[i][0], sizes[i][1]
		v, err := (&picture.Image{Height: h, Width: w, Pix: image}).Cut(picture.Size{Height: h, Width: w}, tile.Size, src.Pictures.Most)
		if err != nil {
			return nil, err
		}
		var all []float32
		for _, im := range v.Images {
			rows, err := tower.Rows(t.Context(), im.Planes(norm))
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
		}
		return all, nil
	}
	if tile := src.Model.Towers[0]; tile.Slices != nil {
		h, w := sizes[i][0], sizes[i][1]
		v, err := (&picture.Image{Height: h, Width: w, Pix: image}).Slices(picture.Size{Height: h, Width: w}, tile.Patch)
		if err != nil {
			return nil, err
		}
		var all []float32
		for _, im := range v.Images {
			x, err := im.Patches(norm, source.Cells(tile))
			if err != nil {
				return nil, err
			}
			rows, err := tower.GridRows(t.Context(), x.Pixels, x.Grid.Height, x.Grid.Width)
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
		}
		return all, nil
	}
	if sizes == nil {
		return tower.Rows(t.Context(), stagetest.Planes(image, norm.Mean, norm.Scale))
	}
	x, err := (&picture.Image{Height: sizes[i][0], Width: sizes[i][1], Pix: image}).Patches(norm, source.Cells(src.Model.Towers[0]))
	if err != nil {
		return nil, err
	}
	return tower.GridRows(t.Context(), x.Pixels, x.Grid.Height, x.Grid.Width)
}

// near requires that values differ by at most a part of the largest of them.
func near(t *testing.T, what string, want, got []float32, part float64) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d %s, want %d", len(got), what, len(want))
	}
	var most, diff float64
	for i, w := range want {
		most, diff = max(most, math.Abs(float64(w))), max(diff, math.Abs(float64(got[i]-w)))
	}
	if !(diff <= part*most) {
		t.Errorf("%s differ by %g, the largest is %g", what, diff, most)
	}
}
