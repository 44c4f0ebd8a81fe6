package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/stage"
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
	for _, want := range []string{"\nbroken ", " 4.000 ", " - ", "note: broken has NaN or infinite logits at 3 positions"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
