package calibrate

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/quant"
)

// op is a matrix of the body, or a head of its own, while its sensitivity is measured.
type op struct {
	tensor     string
	rows, cols int
	// kind is the name within a layer, experts without their numbers: "attention.q", "experts.gate"; or "head".
	kind  string
	layer int // the number of layers for the head
	// expert: only the tokens that a router sends to it reach it.
	expert bool
	specs  []quant.Spec // its options; none if it is not measured

	// estimate is the divergence that the gradients predict for the anchor; errors are the relative ones of the options.
	estimate float64
	errors   []float64
	// ratio is that of the measured divergence of its group to the estimated one.
	ratio float64
}

// opsOf lists the matrices of a decoder, but not the table, with the specs that options lists for them.
func opsOf(d *arch.Decoder, options func(w arch.Weight, lookup bool) []quant.Spec) []*op {
	var all []*op
	d.Linears(func(name string, l *arch.Linear) {
		if name == headInput && d.Tied {
			return
		}
		x := &op{tensor: l.Weight.Tensor, rows: l.Weight.Rows, cols: l.Weight.Cols, kind: name, layer: len(d.Layers), expert: toExpert(name)}
		if rest, ok := strings.CutPrefix(name, "layers."); ok {
			number, rest, _ := strings.Cut(rest, ".")
			x.layer, _ = strconv.Atoi(number)
			parts := strings.Split(rest, ".")
			plain := slices.DeleteFunc(slices.Clone(parts), func(s string) bool { _, err := strconv.Atoi(s); return err == nil })
			x.kind = strings.Join(plain, ".")
		}
		x.specs = options(l.Weight, false)
		all = append(all, x)
	})
	return all
}

// kl is the predicted divergence of an option.
func (x *op) kl(option int) float64 { return x.estimate * x.ratio * x.errors[option] }
