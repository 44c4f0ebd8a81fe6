package main

import (
	"bytes"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/publish/figure"
)

var update = flag.Bool("update", false, "draw docs/quality.svg")

const (
	page    = "../../docs/quality.md"
	picture = "../../docs/quality.svg"
)

// measured reads the first table of the page: packages, and the files of llama.cpp next to them. A row has, in this order,
// millions of bytes, name and divergence of the file, bytes and divergence of the package, and two cells later its bits per
// weight.
func measured(t *testing.T, text string) (points []figure.Point) {
	t.Helper()
	_, text, ok := strings.Cut(text, "\n## Whole packages\n")
	if !ok {
		t.Fatalf("%s has no section Whole packages", page)
	}
	number := func(cell string) float64 {
		x, err := strconv.ParseFloat(strings.NewReplacer("*", "", ",", "", " M", "").Replace(cell), 64)
		if err != nil {
			t.Fatalf("%s: %q is not a number", page, cell)
		}
		return x
	}
	in := false
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) > 7 && strings.HasSuffix(cells[0], " M"):
			in = true
			points = append(points,
				figure.Point{Name: cells[1], Bytes: int64(number(cells[0]) * 1e6), KL: number(cells[2]), Kind: figure.Given},
				figure.Point{Name: cells[7] + " bits", Bytes: int64(number(cells[3])), KL: number(cells[4]), Kind: figure.Front})
		case in:
			return points
		}
	}
	return points
}

// TestPicture: the picture shows the numbers of the page. -update draws it.
func TestPicture(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	points := measured(t, strings.ReplaceAll(string(text), "\r\n", "\n"))
	if len(points) != 12 {
		t.Fatalf("%s has %d points, want 6 packages and 6 files of llama.cpp", page, len(points))
	}
	want := figure.Scatter("llmexport (filled) and llama.cpp (hollow): divergence from the 16-bit original, 26 million weights", points, figure.Wide).File()
	if *update {
		if err := os.WriteFile(picture, want, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")), want) {
		t.Errorf("%s is not drawn from %s: go test ./internal/quality -run TestPicture -update", picture, page)
	}
}
