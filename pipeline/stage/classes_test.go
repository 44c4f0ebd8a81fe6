package stage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// mixtureItems describe layers of experts, their divergences e^1, e^2 and so on of a few sizes, and one matrix besides.
func mixtureItems(layers, experts, sizes int) (*arch.Decoder, []quant.Item) {
	d := &arch.Decoder{}
	items := []quant.Item{{Members: []string{"q"}, Options: []quant.Option{{Spec: quant.Half, Bytes: 1}}}}
	for i := range layers {
		e := &arch.Experts{}
		for j := range experts {
			linear := func(name string) arch.Linear {
				name = fmt.Sprintf("%d.%d.%s", i, j, name)
				kl := math.Exp(float64(j % sizes))
				items = append(items, quant.Item{Members: []string{name}, Options: []quant.Option{
					{Spec: quant.Spec{Bits: 4, Block: 64, Scale: tensor.F16}, Bytes: 10, RAM: 20, KL: kl + float64(j)/1000},
					{Spec: quant.Spec{Bits: 8, Block: 64, Scale: tensor.F16}, Bytes: 20, RAM: 30, KL: kl / 200},
				}})
				return arch.Linear{Weight: arch.Weight{Tensor: name}}
			}
			e.Experts = append(e.Experts, arch.MLP{Gate: linear("gate"), Up: linear("up"), Down: linear("down")})
		}
		layer := arch.Layer{{Block: e}}
		if i%2 == 1 {
			layer = arch.Layer{{Block: &arch.Sum{Branches: []arch.Branch{{Block: e}}}}}
		}
		d.Layers = append(d.Layers, layer)
	}
	return d, items
}

// Experts that matter alike share a form, gate and up one and down another; matrices that an override has taken out are in no class.
func TestClasses(t *testing.T) {
	t.Parallel()
	d, items := mixtureItems(2, 9, 3)
	items = slices.DeleteFunc(items, func(it quant.Item) bool { return it.Members[0] == "1.4.gate" })
	var got []string
	for _, it := range classes(d, items) {
		got = append(got, fmt.Sprintf("%s %d", strings.Join(it.Members, " "), it.Options[0].Bytes))
	}
	// Three sizes fill three classes; the fourth divides the smallest, whose logarithms lie farthest apart.
	want := []string{
		"q 1",
		"0.0.gate 0.0.up 20", "0.3.gate 0.3.up 0.6.gate 0.6.up 40",
		"0.1.gate 0.1.up 0.4.gate 0.4.up 0.7.gate 0.7.up 60", "0.2.gate 0.2.up 0.5.gate 0.5.up 0.8.gate 0.8.up 60",
		"0.0.down 10", "0.3.down 0.6.down 20", "0.1.down 0.4.down 0.7.down 30", "0.2.down 0.5.down 0.8.down 30",
	}
	if !slices.Equal(got[:len(want)], want) {
		t.Errorf("%q, want %q", got[:len(want)], want)
	}
	all := map[string]int{}
	for _, line := range got {
		for _, name := range strings.Fields(line) {
			all[name]++
		}
	}
	for _, it := range items {
		if all[it.Members[0]] != 1 {
			t.Errorf("%s is in %d classes", it.Members[0], all[it.Members[0]])
		}
	}
}

// A model of 128 experts in 48 layers is a few hundred items; what is combined has the same sums.
func TestClassesOfManyExperts(t *testing.T) {
	t.Parallel()
	d, items := mixtureItems(48, 128, 7)
	list := classes(d, items)
	if len(items) != 1+48*128*3 || len(list) != 1+48*2*mostClasses {
		t.Errorf("%d matrices are %d items", len(items), len(list))
	}
	var bytes, members int64
	for _, it := range list {
		bytes, members = bytes+it.Options[0].Bytes, members+int64(len(it.Members))
	}
	if bytes != 1+48*128*3*10 || members != int64(len(items)) {
		t.Errorf("%d members of %d bytes", members, bytes)
	}
	least, most := bytes, 2*bytes
	a, err := quant.Allocate(list, quant.Budget{Bytes: (least + most) / 2})
	if err != nil || a.Bytes > (least+most)/2 || a.Bytes < (least+most)*49/100 {
		t.Errorf("%+v, %v", a, err)
	}
}
