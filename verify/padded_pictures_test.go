package verify_test

import (
	"sync"
	"testing"

	"github.com/llmexport/llmexport/runtime/mnn"
)

const padded = families + "gemma4"

// goodPadded makes, once, a package with a tower that always takes as many patches.
var goodPadded = sync.OnceValues(func() (string, error) { return exportSeeing(padded, "quantize: {bits: 16}") })

// TestPaddedPictures: of a tower that always takes as many patches, the check finds damage to what tells them apart.
func TestPaddedPictures(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	const tower, model = "visual.mnn at the source's precision", "KL "
	part := func(name string, damage func(a *mnn.Op)) func(e *edition) {
		return func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, a := op(e.t, g, name)
				damage(a)
			})
		}
	}
	becomes := func(op mnn.BinaryOp) func(a *mnn.Op) { return func(a *mnn.Op) { a.Param.(*mnn.Binary).Op = op } }
	for _, c := range []struct {
		name   string
		damage func(e *edition)
		fails  []string
		detail string
	}{
		{"good", func(*edition) {}, nil, "on a prompt with 2 pictures"},
		{"patches that are none are seen", part("/mask", becomes(mnn.BinaryMaximum)), []string{"pictures"}, tower},
		{"patches that are none are in means", part("/means/taken", becomes(mnn.BinaryMaximum)), []string{"pictures"}, tower},
		{"positions of rows by column", func(e *edition) {
			e.partGraph(mnn.VisualPart, func(g *mnn.Graph) {
				_, row := op(e.t, g, "/positions/axis_0/gathered")
				_, column := op(e.t, g, "/positions/axis_1/gathered")
				row.Inputs[1], column.Inputs[1] = column.Inputs[1], row.Inputs[1]
			})
		}, []string{"pictures"}, tower},
		{"cells in another order", part("/means/before", becomes(mnn.BinaryAdd)), []string{"pictures"}, tower},
		{"pixels from 0 on", part("/patches/centered", becomes(mnn.BinaryAdd)), []string{"pictures"}, tower},
		{"another factor", part("/projector/scale", becomes(mnn.BinaryRealDiv)), []string{"pictures"}, tower},
		{"other marks", part("/marks/follow", becomes(mnn.BinarySub)), []string{"pictures"}, model},
		{"causal where pictures see themselves", func(e *edition) {
			e.graph(func(g *mnn.Graph) {
				_, a := op(e.t, g, "/mask/causal_window_16/scores/beyond_picture")
				a.Param.(*mnn.Binary).Op = mnn.BinarySub
			})
		}, []string{"pictures"}, model},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			judged(t, padded, goodPadded, c.damage, c.fails, c.detail)
		})
	}
}
