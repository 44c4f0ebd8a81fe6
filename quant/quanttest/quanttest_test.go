package quanttest_test

import (
	"slices"
	"testing"

	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/quant/quanttest"
)

// faulty rounds to nearest, and then breaks a promise.
type faulty struct {
	quant.RTN
	promise quant.Closeness
	needs   quant.Needs
	prepare func(s quant.Spec) (quant.Spec, error)
	before  func(w quant.Matrix) quant.Matrix
	after   func(dst quant.Blocks, w quant.Matrix, s quant.Spec, threads int)
}

func (f *faulty) Closeness() quant.Closeness { return f.promise }
func (f *faulty) Needs() quant.Needs         { return f.needs }

func (f *faulty) Prepare(s quant.Spec, cols int, in *quant.Stats, threads int) (quant.Encoder, error) {
	if f.prepare != nil {
		var err error
		if s, err = f.prepare(s); err != nil {
			return nil, err
		}
	}
	e, err := f.RTN.Prepare(s, cols, in, threads)
	return &faultyEncoder{e, f, s, threads}, err
}

type faultyEncoder struct {
	quant.Encoder
	f       *faulty
	s       quant.Spec
	threads int
}

func (e *faultyEncoder) Encode(dst quant.Blocks, w quant.Matrix) error {
	v := w
	if e.f.before != nil {
		v = e.f.before(w)
	}
	err := e.Encoder.Encode(dst, v)
	if err == nil && e.f.after != nil {
		e.f.after(dst, w, e.s, e.threads)
	}
	return err
}

// doubled folds a scale into all channels, whatever it costs.
type doubled struct {
	quant.AWQ
	scale float32
	cost  float64
}

func (d *doubled) Fold(s *quant.Site, _ quant.Quantizer, _ int) (quant.Scaling, error) {
	return quant.Scaling{Channels: slices.Repeat([]float32{d.scale}, s.Channels), Before: 1, After: d.cost}, nil
}

// stretched calls itself a rotation and admits everything.
type stretched struct{ quant.Rotation }

func (*stretched) Admits(quant.Quantizer) bool { return true }

func TestFaulty(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-all runs it")
	}
	t.Parallel()
	each := func(do func(i int, dst quant.Blocks, s quant.Spec)) func(quant.Blocks, quant.Matrix, quant.Spec, int) {
		return func(dst quant.Blocks, _ quant.Matrix, s quant.Spec, _ int) {
			for i := range dst.Codes {
				do(i, dst, s)
			}
		}
	}
	for _, c := range []struct {
		name string
		m    quant.Method
		want []string
	}{
		{"nothing is wrong", &faulty{}, nil},
		{"codes are off by one", &faulty{after: each(func(i int, dst quant.Blocks, _ quant.Spec) { dst.Codes[i] ^= 1 })},
			[]string{"closeness", "hard rows", "zero and constant rows"}},
		{"codes do not fit", &faulty{after: each(func(i int, dst quant.Blocks, _ quant.Spec) { dst.Codes[i] = 255 })},
			[]string{"closeness", "hard rows", "zero and constant rows", "cuts and threads", "arguments unchanged"}},
		{"terms are not rounded", &faulty{after: func(dst quant.Blocks, _ quant.Matrix, _ quant.Spec, _ int) { dst.Scale[0] *= 1 + 0x1p-20 }},
			[]string{"closeness", "hard rows", "zero and constant rows", "cuts and threads", "arguments unchanged"}},
		{"promises more than it keeps", &faulty{promise: quant.Closeness{Weights: quant.Near, Factor: 0.9}}, []string{"closeness", "hard rows"}},
		{"promises near without a factor", &faulty{promise: quant.Closeness{Weights: quant.Near}}, []string{"options", "closeness", "hard rows"}},
		{"the first row of a call differs", &faulty{
			promise: quant.Closeness{Weights: quant.Near, Factor: 1e9},
			after:   func(dst quant.Blocks, _ quant.Matrix, _ quant.Spec, _ int) { dst.Codes[0] ^= 1 },
		}, []string{"hard rows", "zero and constant rows", "cuts and threads"}},
		{"threads show", &faulty{after: func(dst quant.Blocks, _ quant.Matrix, s quant.Spec, threads int) {
			if threads > 1 {
				dst.Codes[0] ^= 1
			}
		}}, []string{"cuts and threads"}},
		{"weights are changed", &faulty{after: func(_ quant.Blocks, w quant.Matrix, _ quant.Spec, _ int) { w.Data[3]++ }},
			[]string{"arguments unchanged"}},
		{"NaN counts as 0", &faulty{before: func(w quant.Matrix) quant.Matrix {
			w.Data = slices.Clone(w.Data)
			for i, v := range w.Data {
				if v-v != 0 {
					w.Data[i] = 0
				}
			}
			return w
		}}, []string{"not finite"}},
		{"large weights are clipped", &faulty{before: func(w quant.Matrix) quant.Matrix {
			w.Data = slices.Clone(w.Data)
			for i, v := range w.Data {
				if v-v == 0 {
					w.Data[i] = max(-1e5, min(v, 1e5))
				}
			}
			return w
		}}, []string{"beyond the type"}},
		{"16 bits are taken for 8", &faulty{prepare: func(s quant.Spec) (quant.Spec, error) {
			if s.Bits == 16 {
				s = quant.Spec{Bits: 8, Block: 32, Scale: 1}
			}
			return s, nil
		}}, []string{"nonsense"}},
		{"watches, and rounds worse", &faulty{
			needs: quant.Text, promise: quant.Closeness{Weights: quant.Fitted},
			after: each(func(i int, dst quant.Blocks, s quant.Spec) { dst.Codes[i] &^= 1 }),
		}, []string{"closeness", "dead columns", "nonsense"}},
		{"scales are negative", &doubled{*quant.NewAWQ(), -2, 1}, []string{"scales", "dead channels", "corrupt sites"}},
		{"scales cost", &doubled{*quant.NewAWQ(), 2, 3}, []string{"scales", "corrupt sites"}},
		{"a rotation for all", &stretched{*quant.NewRotation()}, []string{"rotation"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := quanttest.Broken(c.m)
			for _, want := range c.want {
				if !slices.Contains(got, want) {
					t.Errorf("%q is not noticed; broken: %q", want, got)
				}
			}
			if c.want == nil && got != nil {
				t.Errorf("broken: %q", got)
			}
		})
	}
}
