// Package quanttest is the conformance suite of quantization methods. [Run] holds a method to the promises that
// docs/architecture.md lists: its [quant.Closeness], the same result however rows are cut and for any number of threads,
// constant and zero rows, dead columns, errors for what cannot be stored. [Digest] pins its bits.
package quanttest

import (
	"fmt"
	"iter"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// promise is one thing that methods of a kind guarantee. It returns an error that says how the method breaks it.
type promise[M quant.Method] struct {
	name string
	keep func(m M) error
}

// Run tests a method with its options. Each promise is a subtest.
func Run(t *testing.T, m quant.Method) {
	for name, err := range hold(m) {
		t.Run(name, func(t *testing.T) {
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Broken names the promises that a method breaks.
func Broken(m quant.Method) (names []string) {
	for name, err := range hold(m) {
		if err != nil {
			names = append(names, name)
		}
	}
	return names
}

// hold yields the name of every promise that the kinds of m make, and how m breaks it.
func hold(m quant.Method) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if !yield("options", options(m)) {
			return
		}
		if q, ok := m.(quant.Quantizer); ok && !each(q, quantizers, yield) {
			return
		}
		if f, ok := m.(quant.Folder); ok && !each(f, folders, yield) {
			return
		}
		if r, ok := m.(quant.Rotator); ok {
			each(r, rotators, yield)
		}
	}
}

func each[M quant.Method](m M, list []promise[M], yield func(string, error) bool) bool {
	for _, p := range list {
		if !yield(p.name, p.keep(m)) {
			return false
		}
	}
	return true
}

// options: the options are valid, and what is promised makes sense for the kind of method.
func options(m quant.Method) error {
	c := m.Closeness()
	_, quantizes := m.(quant.Quantizer)
	_, folds := m.(quant.Folder)
	_, rotates := m.(quant.Rotator)
	switch {
	case m.Name() == "":
		return fmt.Errorf("the method has no name")
	case m.Validate() != nil:
		return fmt.Errorf("options: %w", m.Validate())
	case quantizes && !folds && c.Floats != quant.Kept:
		return fmt.Errorf("a method that chooses codes does not change floats, but promises %+v", c)
	case c.Weights == quant.Near && !(c.Factor > 0):
		return fmt.Errorf("weights are promised near, with a factor of %g", c.Factor)
	case folds && m.Needs() < quant.Text:
		return fmt.Errorf("a folding reads inputs, so it needs a text")
	case rotates && (c.Floats != quant.Turned || m.Needs() < quant.Model):
		return fmt.Errorf("a rotation turns the floats of the whole model, but promises %+v and needs %v", c, m.Needs())
	}
	return nil
}

// specs are the storage forms that a method is tried with: of all forms with codes, every one for a method that is fast, a
// fifth of them, with all bits, blocks, signs and types of scales, for one that needs a text; fewer if short. Forms that q rejects as
// unsupported are left out.
func specs(q quant.Quantizer, short bool) (list []quant.Spec) {
	n, stride := 0, 1
	if q.Needs() >= quant.Text {
		stride = 5
	}
	if short {
		stride = 2*stride + 3
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, block := range []int{quant.WholeRow, 32, 64, 128} {
			for _, symmetric := range []bool{false, true} {
				for _, scale := range []tensor.DType{tensor.F16, tensor.F32} {
					s := quant.Spec{Bits: bits, Block: block, Symmetric: symmetric, Scale: scale}
					if n++; n%stride == 0 && supports(q, s) {
						list = append(list, s)
					}
				}
			}
		}
	}
	return list
}
