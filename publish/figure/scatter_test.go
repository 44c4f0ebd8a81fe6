package figure

import (
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden figures in testdata")

// plots are what is drawn: packages of one model next to those of another program, and difficult cases.
var plots = map[string][]Point{
	"packages": {
		{Name: "small-int4", Bytes: 15_440_000, KL: 0.0053, Kind: Front},
		{Name: "small-int3", Bytes: 13_210_000, KL: 0.0109, Kind: Front},
		{Name: "small-int2", Bytes: 9_940_000, KL: 0.0442, Kind: Front},
		{Name: "small-int5", Bytes: 16_840_000, KL: 0.0031, Kind: Front},
		{Name: "small-rtn", Bytes: 15_620_000, KL: 0.0208},
		{Name: "Q4_1", Bytes: 17_510_000, KL: 0.0075, Kind: Given},
		{Name: "Q4_K_M", Bytes: 16_840_000, KL: 0.0070, Kind: Given},
		{Name: "Q4_K_S", Bytes: 16_200_000, KL: 0.0073, Kind: Given},
		{Name: "Q4_0", Bytes: 16_130_000, KL: 0.0101, Kind: Given},
		{Name: "IQ4_XS", Bytes: 15_440_000, KL: 0.0090, Kind: Given},
		{Name: "Q3_K_M", Bytes: 14_340_000, KL: 0.0181, Kind: Given},
		{Name: "IQ3_S", Bytes: 13_210_000, KL: 0.0262, Kind: Given},
		{Name: "Q3_K_S", Bytes: 13_210_000, KL: 0.0319, Kind: Given},
		{Name: "Q2_K", Bytes: 11_810_000, KL: 0.0695, Kind: Given},
		{Name: "IQ2_S", Bytes: 9_940_000, KL: 0.112, Kind: Given},
	},
	"wide": {
		{Name: "8 bits", Bytes: 28_740_000, KL: 0.00012, Kind: Front},
		{Name: "16 bits", Bytes: 52_000_000, KL: 3e-12, Kind: Front},
		{Name: "the same <again> & \"again\"", Bytes: 52_000_000, KL: 0},
		{Name: "garbage", Bytes: 9_060_000, KL: 4.87, Kind: Front},
	},
	"one":  {{Name: "alone", Bytes: 1000, KL: 0.5, Kind: Front}},
	"none": nil,
}

func TestScatter(t *testing.T) {
	for name, points := range plots {
		t.Run(name, func(t *testing.T) {
			golden(t, name, Scatter("Size & divergence", points, Wide))
		})
	}
	golden(t, "narrow", Scatter("Quality over size", []Point{
		{Name: "int4", Bytes: 400e6, KL: 0.0389, StdErr: 0.002, Kind: Front}, {Name: "int8", Bytes: 700e6, KL: 0.001, StdErr: 0.002, Kind: Front},
		{Name: "the source", Bytes: 1200e6, Kind: Source},
	}, Narrow))
}

// golden compares the file of a figure with that in testdata, and requires that all of it is XML without NaN and infinity.
func golden(t *testing.T, name string, f *Figure) {
	t.Helper()
	got := string(f.File())
	for d := xml.NewDecoder(strings.NewReader(got)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
		t.Errorf("%s: a coordinate is no number", name)
	}
	if inline := string(f.Inline()); strings.Contains(inline, "<style>") || !strings.Contains(inline, ` aria-label="`) {
		t.Errorf("%s: inline: %.200s", name, inline)
	}
	file := filepath.Join("testdata", name+".svg")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: go test -update rewrites it:\n%s", name, diff)
	}
}

// Names cover neither each other nor points, for as many points as a plot is made for and for more.
func TestLabels(t *testing.T) {
	r := frame{74, 78, 844, 472}
	check := func(t *testing.T, points []Point, dots []spot) {
		list := labels(points, dots, r)
		var boxes []box
		for i, l := range list {
			b := box{l.x, l.y, l.x + charWidth*float64(utf8.RuneCountInString(points[i].Name)), l.y + lineHeight}
			if !b.inside(box{r.left, r.top, r.right + 16, r.bottom}) {
				t.Errorf("%s stands at %v", points[i].Name, b)
			}
			for k, other := range boxes {
				if b.overlaps(other) {
					t.Errorf("%s covers %s", points[i].Name, points[k].Name)
				}
			}
			for k, d := range dots {
				if b.overlaps(box{d.x - dotRadius, d.y - dotRadius, d.x + dotRadius, d.y + dotRadius}) {
					t.Errorf("%s covers the point of %s", points[i].Name, points[k].Name)
				}
			}
			boxes = append(boxes, b)
		}
	}
	for name, points := range plots {
		t.Run(name, func(t *testing.T) {
			x, y := axes(points, r)
			var dots []spot
			for _, p := range points {
				dots = append(dots, spot{x.place(float64(p.Bytes)), y.place(logKL(p.KL))})
			}
			check(t, points, dots)
		})
	}
	t.Run("crowds", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			var points []Point
			var dots []spot
			spread := 20 + 340*rng.Float64()
			for i := range 12 {
				points = append(points, Point{Name: fmt.Sprintf("package-%d-int4", i)})
				dots = append(dots, spot{r.left + 20 + spread*rng.Float64(), r.top + 10 + spread*rng.Float64()})
			}
			check(t, points, dots)
		}
	})
}
