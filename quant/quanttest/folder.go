package quanttest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// folders are the promises of methods that scale channels, rotators those of methods that rotate.
var (
	folders = []promise[quant.Folder]{
		{"scales", scales},
		{"dead channels", deadChannels},
		{"corrupt sites", corruptSites},
	}
	rotators = []promise[quant.Rotator]{{"rotation", rotation}}
)

func site() *quant.Site {
	w, in := layer()
	return &quant.Site{
		Name: "test", Channels: cols, Specs: []quant.Spec{{Bits: 4, Block: 32, Scale: tensor.F16}},
		Consumers: []quant.Matrix{{Rows: w.Rows, Cols: w.Cols, Data: slices.Clone(w.Data)}},
		Stats:     &quant.Stats{Cols: in.Cols, Tokens: in.Tokens, Hessian: slices.Clone(in.Hessian)},
	}
}

// scales: they are positive and finite, lose nothing, are the same for any number of threads, and the site stays as it is.
func scales(f quant.Folder) error {
	var first quant.Scaling
	for i, threads := range []int{1, 2, 7} {
		s := site()
		got, err := f.Fold(s, quant.RTN{}, threads)
		if err != nil {
			return err
		}
		if i == 0 {
			first = got
		}
		switch {
		case !reflect.DeepEqual(s, site()):
			return fmt.Errorf("the site was changed")
		case !reflect.DeepEqual(first, got):
			return fmt.Errorf("other scales on %d threads", threads)
		case !(got.After <= got.Before):
			return fmt.Errorf("scales raise the loss from %g to %g", got.Before, got.After)
		}
		if err := positive(got); err != nil {
			return err
		}
	}
	return nil
}

func positive(s quant.Scaling) error {
	for i, v := range s.Channels {
		if !(v > 0) || v-v != 0 || 1/v-1/v != 0 {
			return fmt.Errorf("scale of channel %d is %g", i, v)
		}
	}
	return nil
}

// deadChannels: channels without inputs keep finite, positive scales.
func deadChannels(f quant.Folder) error {
	n := noise(1)
	s := site()
	s.Stats = stats(n.matrix(tokens, cols), []int{0, 7, cols - 1})
	got, err := f.Fold(s, quant.RTN{}, 1)
	if err != nil {
		return err
	}
	return positive(got)
}

// corruptSites: weights or statistics that are NaN are corrupt; a site without specs is an error.
func corruptSites(f quant.Folder) error {
	nan := float32(math.NaN())
	weights, inputs, none := site(), site(), site()
	weights.Consumers[0].Data[77], inputs.Stats.Hessian[77], none.Specs = nan, nan, nil
	for name, s := range map[string]*quant.Site{"a weight": weights, "statistics": inputs} {
		if _, err := f.Fold(s, quant.RTN{}, 1); !errors.Is(err, tensor.ErrCorrupt) {
			return fmt.Errorf("%s of NaN: error %v", name, err)
		}
	}
	if _, err := f.Fold(none, quant.RTN{}, 1); err == nil {
		return fmt.Errorf("a site without specs is accepted")
	}
	return nil
}

// rotation: vectors keep their length, and only some quantizers are admitted.
func rotation(r quant.Rotator) error {
	if r.Admits(quant.RTN{}) {
		return fmt.Errorf("rounding to nearest is admitted, which gains nothing from rotated weights")
	}
	for _, n := range []int{64, 92, 96} {
		for _, h := range []*quant.Hadamard{r.Stream(n), r.Head(n)} {
			if h == nil {
				continue
			}
			x := make([]float64, n)
			x[n/3] = 1
			h.Apply(x)
			var sum float64
			for _, v := range x {
				sum += v * v
			}
			if math.Abs(sum-1) > 1e-12 {
				return fmt.Errorf("a vector of %d channels has %g times its length squared", n, sum)
			}
		}
	}
	return nil
}
