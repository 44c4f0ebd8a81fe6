package main

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

var update = flag.Bool("update", false, "rewrite the golden plots in testdata/plot")

// plots are what is drawn: packages of one model next to those of another program, and difficult cases.
var plots = map[string][]plotPoint{
	"packages": {
		{Name: "small-int4", Bytes: 15_440_000, KL: 0.0053, front: true},
		{Name: "small-int3", Bytes: 13_210_000, KL: 0.0109, front: true},
		{Name: "small-int2", Bytes: 9_940_000, KL: 0.0442, front: true},
		{Name: "small-int5", Bytes: 16_840_000, KL: 0.0031, front: true},
		{Name: "small-rtn", Bytes: 15_620_000, KL: 0.0208},
		{Name: "Q4_1", Bytes: 17_510_000, KL: 0.0075, given: true},
		{Name: "Q4_K_M", Bytes: 16_840_000, KL: 0.0070, given: true},
		{Name: "Q4_K_S", Bytes: 16_200_000, KL: 0.0073, given: true},
		{Name: "Q4_0", Bytes: 16_130_000, KL: 0.0101, given: true},
		{Name: "IQ4_XS", Bytes: 15_440_000, KL: 0.0090, given: true},
		{Name: "Q3_K_M", Bytes: 14_340_000, KL: 0.0181, given: true},
		{Name: "IQ3_S", Bytes: 13_210_000, KL: 0.0262, given: true},
		{Name: "Q3_K_S", Bytes: 13_210_000, KL: 0.0319, given: true},
		{Name: "Q2_K", Bytes: 11_810_000, KL: 0.0695, given: true},
		{Name: "IQ2_S", Bytes: 9_940_000, KL: 0.112, given: true},
	},
	"wide": {
		{Name: "8 bits", Bytes: 28_740_000, KL: 0.00012, front: true},
		{Name: "16 bits", Bytes: 52_000_000, KL: 3e-12, front: true},
		{Name: "the same <again> & \"again\"", Bytes: 52_000_000, KL: 0},
		{Name: "garbage", Bytes: 9_060_000, KL: 4.87, front: true},
	},
	"one":  {{Name: "alone", Bytes: 1000, KL: 0.5, front: true}},
	"none": nil,
}

func TestPlot(t *testing.T) {
	for name, points := range plots {
		t.Run(name, func(t *testing.T) {
			got := plot(points, "Size & divergence")
			for d := xml.NewDecoder(strings.NewReader(got)); ; {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
				t.Error("a coordinate is no number")
			}
			file := filepath.Join("testdata", "plot", name+".svg")
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
				t.Errorf("go test -update rewrites it:\n%s", diff)
			}
		})
	}
}

// Names cover neither each other nor points, for as many points as a plot is made for and for more.
func TestLabels(t *testing.T) {
	check := func(t *testing.T, points []plotPoint, dots []spot) {
		list := labels(points, dots)
		var boxes []box
		for i, l := range list {
			b := box{l.x, l.y, l.x + charWidth*float64(utf8.RuneCountInString(points[i].Name)), l.y + lineHeight}
			if !b.inside(box{marginLeft, 0, plotWidth, plotHeight - marginBottom}) {
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
			x, y := axes(points)
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
			var points []plotPoint
			var dots []spot
			spread := 20 + 400*rng.Float64()
			for i := range 12 {
				points = append(points, plotPoint{Name: fmt.Sprintf("package-%d-int4", i)})
				dots = append(dots, spot{marginLeft + 20 + spread*rng.Float64(), marginTop + 10 + spread*rng.Float64()})
			}
			check(t, points, dots)
		}
	})
}

func TestParsePoints(t *testing.T) {
	for _, c := range []struct {
		text string
		want plotPoint
		ok   bool
	}{
		{"Q4_K_M,16840000,.0070", plotPoint{Name: "Q4_K_M", Bytes: 16840000, KL: 0.007, given: true}, true},
		{" a, b , 1 , 0 ", plotPoint{Name: "a, b", Bytes: 1, given: true}, true},
		{"a,1", plotPoint{}, false},
		{",1,1", plotPoint{}, false},
		{"a,0,1", plotPoint{}, false},
		{"a,1.5,1", plotPoint{}, false},
		{"a,1,-1", plotPoint{}, false},
		{"a,1,NaN", plotPoint{}, false},
	} {
		got, err := parsePoints([]string{c.text})
		if c.ok != (err == nil) || c.ok && got[0] != c.want {
			t.Errorf("%q gives %v, %v", c.text, got, err)
		}
	}
}
