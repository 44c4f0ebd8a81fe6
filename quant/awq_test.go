package quant

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/runtime/tensor"
)

// ratio is the loss of a whole site with scales to that without, measured apart from the code under test: weights are
// scaled, encoded, and the error divided by the scales.
func ratio(t *testing.T, s *Site, q Quantizer, scale []float32) float64 {
	t.Helper()
	var sum [2]float64
	for k, with := range []bool{false, true} {
		for i, w := range s.Consumers {
			v := Matrix{w.Rows, w.Cols, slices.Clone(w.Data)}
			for j := range v.Data {
				if with {
					v.Data[j] *= s.Column(scale, j%w.Cols)
				}
			}
			l, err := s.Specs[i].Layout(w.Rows, w.Cols)
			if err != nil {
				t.Fatal(err)
			}
			b := NewBlocks(l, s.Specs[i])
			if err := Encode(q, b, v, s.Specs[i], nil); err != nil {
				t.Fatal(err)
			}
			diff := make([]float32, len(v.Data))
			b.errors(diff, v, l, s.Specs[i])
			for j := range diff {
				if with {
					diff[j] /= s.Column(scale, j%w.Cols)
				}
			}
			sum[k] += form(diff, w, s.Stats, 0)
		}
	}
	return sum[1] / sum[0]
}

func geometricMean(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += math.Log(float64(v))
	}
	return math.Exp(sum / float64(len(x)))
}

// Channels that are thirty times as large as the others and read with a thirtieth of the weight vanish in the grid of
// their block. Scales bring them back: at 4 bits a tenth of the loss is left, and learned scales leave less.
func TestFoldingRescuesOutliers(t *testing.T) {
	for _, c := range []struct {
		spec        Spec
		q           Quantizer
		awq, learnt float64 // bounds of what is left, a tenth above what was seen
	}{
		{Spec{4, 64, false, tensor.F16}, RTN{}, 0.083, 0.075},
		{Spec{4, 64, false, tensor.F16}, NewSearch(), 0.076, 0.07},
		{Spec{3, 64, false, tensor.F16}, RTN{}, 0.065, 0.060},
		{Spec{4, 32, true, tensor.F16}, RTN{}, 0.353, 0.324},
	} {
		t.Run(fmt.Sprintf("%v-%s", c.spec, c.q.Name()), func(t *testing.T) {
			s := testSite(c.spec)
			omni := NewOmniQuant()
			omni.Steps = 20
			last := math.Inf(1)
			for _, f := range []struct {
				folder Folder
				bound  float64
			}{{NewAWQ(), c.awq}, {omni, c.learnt}} {
				got, err := f.folder.Fold(s, c.q, 2)
				if err != nil {
					t.Fatal(err)
				}
				r := ratio(t, s, c.q, got.Channels)
				t.Logf("%s: %.4f of the loss is left", f.folder.Name(), r)
				if !(r <= f.bound) || !(r < last) {
					t.Errorf("%s: %.4f of the loss is left, want below %.3f and %.4f", f.folder.Name(), r, f.bound, last)
				}
				last = r
				if claim := got.After / got.Before; math.Abs(claim/r-1) > 1e-3 {
					t.Errorf("%s: claims %.5f, measured %.5f", f.folder.Name(), claim, r)
				}
				if m := geometricMean(got.Channels); math.Abs(m-1) > 1e-5 {
					t.Errorf("%s: geometric mean %g", f.folder.Name(), m)
				}
			}
		})
	}
}

// Scales of one size for all channels change nothing, and the gradient knows: it has no part in that direction.
func TestGradientIgnoresCommonScale(t *testing.T) {
	for _, spec := range []Spec{{4, 64, false, tensor.F16}, {2, 32, false, tensor.F32}, {3, 64, true, tensor.F16}} {
		for _, q := range []Quantizer{RTN{}, NewSearch()} { // the search clips
			p, err := newProbe(testSite(spec), q, 2)
			if err != nil {
				t.Fatal(err)
			}
			gradient := make([]float64, p.site.Channels)
			if _, err := p.loss(scales(gradient), gradient); err != nil {
				t.Fatal(err)
			}
			var sum, all float64
			for _, g := range gradient {
				sum += g
				all += math.Abs(g)
			}
			if all == 0 || math.Abs(sum) > 1e-6*all {
				t.Errorf("%v, %s: sum %g of %g", spec, q.Name(), sum, all)
			}
		}
	}
}

// A consumer that counts for more rows, and one without codes.
func TestFoldWeighsConsumers(t *testing.T) {
	s := testSite(Spec{4, 32, false, tensor.F16})
	one, err := NewAWQ().Fold(s, RTN{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Consumers = append(s.Consumers, s.Consumers[0], s.Consumers[0])
	s.Specs = append(s.Specs, s.Specs[0], Half)
	s.Weights = []float64{2, 3, 7}
	many, err := NewAWQ().Fold(s, RTN{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if r := many.Before / one.Before; math.Abs(r-5) > 1e-9 {
		t.Errorf("%g times the loss, want 5", r)
	}
	if !slices.Equal(one.Channels, many.Channels) {
		t.Error("other scales")
	}
}

// Columns that share a channel share its scale: the mean of their squares decides.
func TestFoldPoolsChannels(t *testing.T) {
	s := testSite(Spec{4, 32, false, tensor.F16})
	n := s.Stats.Cols
	s.Channels, s.Of = n/2, make([]int, n)
	for j := range s.Of {
		s.Of[j] = j / 64 * 32 % s.Channels // two heads of 64 columns share 32 channels twice over
		s.Of[j] += j % 32
	}
	for _, f := range []Folder{NewAWQ(), &OmniQuant{Steps: 5, Rate: 0.02, LET: true}} {
		got, err := f.Fold(s, RTN{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Channels) != s.Channels || !(got.After < got.Before) {
			t.Fatalf("%s: %d scales, loss from %g to %g", f.Name(), len(got.Channels), got.Before, got.After)
		}
		if r := ratio(t, s, RTN{}, got.Channels); math.Abs(r*got.Before/got.After-1) > 1e-3 {
			t.Errorf("%s: claims %g, measured %g", f.Name(), got.After/got.Before, r)
		}
	}
}

func TestFoldLeavesAlone(t *testing.T) {
	flat := func(s *Site) { // inputs that do not differ: no exponent changes anything
		clear(s.Stats.Hessian)
		for i := range s.Stats.Cols {
			s.Stats.Hessian[i*s.Stats.Cols+i] = 1
		}
	}
	for _, c := range []struct {
		name   string
		change func(s *Site)
	}{
		{"flat inputs", flat},
		{"no inputs", func(s *Site) { clear(s.Stats.Hessian) }},
		{"no weights", func(s *Site) { clear(s.Consumers[0].Data) }},
		{"halves", func(s *Site) { s.Specs[0] = Half }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testSite(Spec{4, 32, false, tensor.F16})
			c.change(s)
			for _, q := range []Quantizer{RTN{}, NewOmniQuant()} {
				got, err := NewAWQ().Fold(s, q, 1)
				if err != nil || got.Channels != nil || got.After != got.Before {
					t.Errorf("%s: %v, %v", q.Name(), got, err)
				}
			}
		})
	}
	t.Run("let is off", func(t *testing.T) {
		o := NewOmniQuant()
		o.LET = false
		if got, err := o.Fold(testSite(Spec{4, 32, false, tensor.F16}), RTN{}, 1); err != nil || got.Channels != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestFoldOptions(t *testing.T) {
	for _, m := range []Method{
		&AWQ{0, 0.05}, &AWQ{1.1, 0.05}, &AWQ{0.5, 0.6}, &AWQ{0.5, 0}, &AWQ{math.NaN(), 0.05},
		&OmniQuant{Rate: 0.01}, &OmniQuant{Steps: 5}, &OmniQuant{Steps: 5, Rate: 0.01, Damping: -1}, &Rotation{},
	} {
		if m.Validate() == nil {
			t.Errorf("%s: %+v is valid", m.Name(), m)
		}
	}
}

func TestChainRefuses(t *testing.T) {
	named := gptqOnly{}
	for _, c := range []struct {
		name string
		list []Method
		ok   bool
	}{
		{"foldings", []Method{NewAWQ(), RTN{}}, true},
		{"omniquant alone", []Method{NewOmniQuant()}, true},
		{"awq and omniquant", []Method{NewAWQ(), NewOmniQuant()}, true},
		{"rotation and gptq", []Method{NewRotation(), named}, true},
		{"folding behind", []Method{RTN{}, NewAWQ()}, false},
		{"no codes", []Method{NewAWQ()}, false},
		{"rotation alone", []Method{NewRotation()}, false},
		{"rotation and rtn", []Method{NewRotation(), RTN{}}, false},
		{"rotation and omniquant", []Method{NewRotation(), NewOmniQuant()}, false},
		{"rotation, awq and gptq", []Method{NewRotation(), NewAWQ(), named}, false},
		{"awq, rotation and gptq", []Method{NewAWQ(), NewRotation(), named}, false},
		{"rotation behind", []Method{named, NewRotation()}, false},
	} {
		chain, err := NewChain(c.list)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.ok && (chain.Rotator != nil) != (c.list[0].Name() == "rotation") {
			t.Errorf("%s: rotator %v", c.name, chain.Rotator)
		}
	}
}

// gptqOnly stands for the one quantizer that a rotation admits.
type gptqOnly struct{ RTN }

func (gptqOnly) Name() string { return "gptq" }
