package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage"
	"github.com/llmexport/llmexport/publish/figure"
	"github.com/llmexport/llmexport/verify"
)

// A package that computes garbage gets no numbers, is not on the front and not in the plot.
func TestComparisonNotFinite(t *testing.T) {
	r := newComparison([]stage.Compared{
		{Dir: "a/broken", Cost: &stage.Cost{Bytes: 9, Weights: 8, MatrixBytes: 4}, Evaluation: &verify.Evaluation{NotFinite: 3}},
	}, verify.Options{TextName: "a text"})
	if p := r.Packages[0]; p.Front || p.KL != nil || p.Perplexity != nil || p.NotFinite != 3 {
		t.Errorf("%+v", p)
	}
	if n := len(r.plotPoints()); n != 0 {
		t.Errorf("%d points are drawn", n)
	}
	var b bytes.Buffer
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nbroken ", " 4.00 ", " - ", "note: broken has NaN or infinite logits at 3 positions"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestParsePoints(t *testing.T) {
	for _, c := range []struct {
		text string
		want figure.Point
		ok   bool
	}{
		{"Q4_K_M,16840000,.0070", figure.Point{Name: "Q4_K_M", Bytes: 16840000, KL: 0.007, Kind: figure.Given}, true},
		{" a, b , 1 , 0 ", figure.Point{Name: "a, b", Bytes: 1, Kind: figure.Given}, true},
		{"a,1", figure.Point{}, false},
		{",1,1", figure.Point{}, false},
		{"a,0,1", figure.Point{}, false},
		{"a,1.5,1", figure.Point{}, false},
		{"a,1,-1", figure.Point{}, false},
		{"a,1,NaN", figure.Point{}, false},
	} {
		got, err := parsePoints([]string{c.text})
		if c.ok != (err == nil) || c.ok && got[0] != c.want {
			t.Errorf("%q gives %v, %v", c.text, got, err)
		}
	}
}
