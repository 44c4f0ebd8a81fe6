package stage

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// layersOf describes layers by letters: of attention, of attention within a window, and of delta nets.
func layersOf(kinds string) *arch.Decoder {
	d := &arch.Decoder{}
	for _, k := range kinds {
		var b arch.Block = &arch.Attention{}
		switch k {
		case 'w':
			b = &arch.Attention{Window: 512}
		case 'd':
			b = &arch.DeltaNet{}
		}
		d.Layers = append(d.Layers, arch.Layer{{Block: b}, {Block: &arch.MLP{}}})
	}
	return d
}

// A trial encodes all of few layers; of many, some that are spread evenly, the ends among them, and some of every kind.
func TestSampledLayers(t *testing.T) {
	repeat := func(s string, n int) (all string) {
		for range n {
			all += s
		}
		return all
	}
	for _, c := range []struct {
		name, kinds string
		want        []int
	}{
		{"one", "a", nil},
		{"as many as are whole", repeat("a", 12), nil},
		{"one more", repeat("a", 13), []int{0, 2, 5, 7, 10, 12}},
		{"28", repeat("a", 28), []int{0, 5, 11, 16, 22, 27}},
		{"36", repeat("a", 36), []int{0, 7, 14, 21, 28, 35}},
		{"94", repeat("a", 94), []int{0, 19, 37, 56, 74, 93}},
		{"both kinds anyway", repeat("ddda", 12), []int{0, 9, 19, 28, 38, 47}},
		{"a rare kind", repeat("w", 10) + "a" + repeat("w", 4) + "a" + repeat("w", 12) + "a" + repeat("w", 8), []int{0, 7, 14, 15, 22, 29, 36}},
		{"two rare kinds", repeat("w", 8) + "a" + repeat("w", 8) + "d" + repeat("w", 8), []int{0, 5, 8, 10, 15, 17, 20, 25}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, defaultTrials.sample(layersOf(c.kinds))); diff != "" {
				t.Errorf("layers (-want +got):\n%s", diff)
			}
		})
	}
}

// A form that was not measured has the divergence of the one next to it, four times that for a bit less; halves have none.
func TestUnmeasuredForms(t *testing.T) {
	spec := func(bits, block int, symmetric bool) quant.Spec {
		return quant.Spec{Bits: bits, Block: block, Symmetric: symmetric, Scale: tensor.F16}
	}
	it := quant.Item{Options: []quant.Option{
		{Spec: spec(4, 32, false), KL: 1}, {Spec: spec(4, 64, false), KL: 2}, {Spec: spec(4, 64, true), KL: 3}, {Spec: spec(8, 64, false), KL: 0.5},
	}}
	for _, c := range []struct {
		spec quant.Spec
		want float64
	}{
		{spec(4, 64, true), 3},
		{spec(4, 64, false), 2},
		{spec(4, 128, true), 3},
		{spec(3, 64, false), 8},
		{spec(2, 32, false), 16},
		{spec(5, 64, false), 0.5},
		{quant.Half, 0},
	} {
		if got := klOf(it, c.spec); got != c.want {
			t.Errorf("%s: %g, want %g", c.spec, got, c.want)
		}
	}
	if got := klOf(quant.Item{}, spec(4, 64, false)); got != 0 {
		t.Errorf("without options: %g", got)
	}
}

// The divergence of the encoded layers is multiplied for the layers that were not encoded, and not for table and head; what towers
// are shown counts the towers, too.
func TestExtensions(t *testing.T) {
	four := quant.Spec{Bits: 4, Block: 64, Scale: tensor.F16}
	d := &arch.Decoder{Embedding: arch.Weight{Tensor: "table"}, Head: arch.Linear{Weight: arch.Weight{Tensor: "head"}}}
	s := calibrate.Scheme{Specs: map[string]quant.Spec{}, Floats: map[string]bool{}}
	x := &trial{}
	for i, name := range []string{"0", "1", "2", "table", "head", "tower"} {
		if i < 3 {
			d.Layers = append(d.Layers, arch.Layer{{Block: &arch.MLP{Up: arch.Linear{Weight: arch.Weight{Tensor: name}}}}})
		}
		s.Specs[name] = four
		x.measured = append(x.measured, quant.Item{Members: []string{name}, Options: []quant.Option{{Spec: four, KL: float64(i + 1)}}})
	}
	leaveOut(d, &s, []int{0, 2})
	var left []string
	for name := range s.Floats {
		left = append(left, name)
	}
	slices.Sort(left)
	if diff := cmp.Diff([]string{"1", "head", "table"}, left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	text, shown := x.extensions(d, &s)
	if want := (extension{6. / 4, 4 + 5}); text != want {
		t.Errorf("text %v, want %v", text, want)
	}
	if want := (extension{12. / 10, 4 + 5}); shown != want {
		t.Errorf("with towers %v, want %v", shown, want)
	}
	if got := text.of(2); got != 12 {
		t.Errorf("%g nats of 2", got)
	}
	s.Specs["0"], s.Specs["2"] = quant.Half, quant.Half
	if text, _ = x.extensions(d, &s); text != (extension{1, 4 + 5 + 2}) {
		t.Errorf("nothing encoded: %v", text)
	}
}
