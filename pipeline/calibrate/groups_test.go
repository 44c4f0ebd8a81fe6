package calibrate

import (
	"context"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// TestMeasureTogether: groups that are measured together, as with a device, have the divergences that they have one by one.
func TestMeasureTogether(t *testing.T) {
	d, src := openCheckpoint(t, tinyDir)
	text, probe := tinyText(t, d, src)
	d.Layers = d.Layers[:3]
	o := Options{Decoder: d, Source: src, Windows: text[:2], Memory: 1 << 30, Threads: 2, Dir: t.TempDir(), Name: "together"}
	m, err := forward.New(d, src, o.Threads)
	check(t, err)
	x := &measurement{Options: o, Measuring: measuring(t, probe[:1], quant.RTN{}), model: m, of: map[string]*op{}, quick: quant.RTN{}}
	x.ops = opsOf(d, x.Measuring.Options)
	for _, op := range x.ops {
		x.of[op.tensor] = op
	}
	x.plan()
	check(t, x.open(t.Context()))
	defer x.close()
	for _, step := range []func(context.Context) error{x.gradients, x.body} {
		check(t, step(t.Context()))
	}
	all := groupsOf(x.ops, len(d.Layers))
	if n := len(x.together(all)); n != 1 {
		t.Errorf("%d groups together without a device", n)
	}
	var alone []float64
	for _, g := range all {
		check(t, x.measure(t.Context(), []*group{g}))
		alone = append(alone, *g.kl)
		g.kl = nil
	}
	x.probe = nil
	none := someProducts(0)
	kernel.SetDevice(&none)
	defer kernel.SetDevice(nil)
	var sizes []int
	for left := all; len(left) > 0; left = left[sizes[len(sizes)-1]:] {
		list := x.together(left)
		check(t, x.measure(t.Context(), list))
		sizes = append(sizes, len(list))
	}
	for i, g := range all {
		if *g.kl != alone[i] || alone[i] <= 0 {
			t.Errorf("group %s from layer %d: %g together and %g alone", g.kind, g.from, *g.kl, alone[i])
		}
	}
	if slices.Max(sizes) < 7 {
		t.Errorf("measured in parts of %v groups", sizes)
	}
	x.Memory = 1 << 16
	if n := len(x.together(all)); n != 1 {
		t.Errorf("%d groups together with little memory", n)
	}
}
