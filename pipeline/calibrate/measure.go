package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Sensitivity is the cost of each way to store one matrix.
type Sensitivity struct {
	Tensor     string
	Rows, Cols int
	// Lookup reports whether the matrix is a lookup table for tokens.
	Lookup  bool
	Options []Option
}

// Option is one way to store a matrix.
type Option struct {
	Spec quant.Spec
	// Error is the relative squared error of the op's outputs.
	Error float64
	// KL is the divergence in nats that the op adds when it is the only one stored this way.
	KL float64
}

// anchor is the spec whose divergence is measured for every op of the body; those of the other options follow from it by the
// ratio of their errors. Three bits are far enough from the float model to exceed rounding noise, and near enough for the
// divergence to be quadratic in the error.
func anchor(scale tensor.DType, cols int) quant.Spec {
	s := quant.Spec{Bits: 3, Block: 64, Scale: scale}
	if cols%s.Block != 0 {
		s.Block = quant.WholeRow
	}
	return s
}

// sampleStep is the distance between the rows of a matrix that give the ratio of errors of its options.
const sampleStep = 4

// Quick is implemented by quantizers that have a cheaper form with about the same ratio of errors between specs.
type quick interface{ Quick() quant.Quantizer }

// Measuring are the arguments of Measure.
type Measuring struct {
	Chain *quant.Chain
	// Options lists the specs that a matrix may take; the first one is always measured.
	Options func(w arch.Weight, lookup bool) []quant.Spec
	// Scale is the type of scales.
	Scale tensor.DType
	// Probe is the text on which divergences are measured, in windows of one length.
	Probe [][]int32
	// Sequential is that of the [Scheme] that will encode the model.
	Sequential bool
}

// Measure finds the sensitivity of every matrix. For the body, the divergence of the model with one op encoded at three bits is
// measured on the probe, and scaled by tr(dW H dWᵀ) for the other options (HIGGS, arXiv 2411.17525: the loss is, to first order,
// a weighted sum of relative squared errors of the layers). The options of tables are measured one by one. Cost: for every op, a
// forward pass of the probe over its own and all later layers.
func Measure(ctx context.Context, o Options, ms Measuring) ([]Sensitivity, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m, err := forward.New(o.Decoder, o.Source, o.Threads)
	if err != nil {
		return nil, err
	}
	p, err := newProbe(ctx, &o, m, ms.Probe, o.Memory/memoryShare)
	if err != nil {
		return nil, err
	}
	x := &measurement{
		Options: o, Measuring: ms, model: m, coder: coder{quantizer: ms.Chain.Quantizer, threads: o.Threads, tally: effort.TallyOf(ctx)},
		probe: p, anchors: map[string]float64{},
	}
	if q, ok := ms.Chain.Quantizer.(quick); ok {
		x.quick = q.Quick()
	} else {
		x.quick = ms.Chain.Quantizer
	}
	x.total = 1 // the table
	o.Decoder.Linears(func(name string, _ *arch.Linear) {
		if name != headInput || !o.Decoder.Tied {
			x.total++
		}
	})
	if err := x.table(ctx); err != nil {
		return nil, err
	}
	w := o.walk(m)
	w.layer = func(ctx context.Context, l *forward.Layer) error { return p.enter(ctx, l) }
	w.wanted = func(in *input) bool { return in.layer < len(o.Decoder.Layers) || !o.Decoder.Tied }
	w.visit = x.visit
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	return x.list, x.scale(ctx)
}

// scale makes the divergences of the body add up to that of the whole model: single ops get float inputs, and their divergences
// are not quite additive. One trial of the model with all ops at their anchors gives the factor.
func (x *measurement) scale(ctx context.Context) error {
	o := x.Options
	var err error
	if o.Dir, err = os.MkdirTemp(o.Dir, "trial-*"); err != nil {
		return err
	}
	defer os.RemoveAll(o.Dir)
	o.Progress = nil
	specs := map[string]quant.Spec{}
	sum := 0.0
	for _, s := range x.list {
		if s.Lookup {
			best := slices.MinFunc(s.Options, func(a, b Option) int { return cmp.Compare(a.KL, b.KL) })
			specs[s.Tensor] = best.Spec
			sum += best.KL
			continue
		}
		specs[s.Tensor] = anchor(x.Scale, s.Cols)
		sum += x.anchors[s.Tensor]
	}
	scheme := Scheme{Chain: &quant.Chain{Quantizer: x.Chain.Quantizer}, Specs: specs, Sequential: x.Sequential}
	f, err := Quantize(ctx, o, scheme)
	if err != nil {
		return err
	}
	kl, err := Divergence(ctx, o, scheme, f, x.Probe)
	if err != nil || sum == 0 {
		return err
	}
	factor := kl / sum
	zerolog.Ctx(ctx).Info().Float64("sum", sum).Float64("kl", kl).Msg("ops by themselves and together, at three bits")
	for i := range x.list {
		if !x.list[i].Lookup {
			for j := range x.list[i].Options {
				x.list[i].Options[j].KL *= factor
			}
		}
	}
	return nil
}

// measurement is the state of Measure.
type measurement struct {
	Options
	Measuring
	model       *forward.Model
	coder       coder
	probe       *probe
	quick       quant.Quantizer
	list        []Sensitivity
	anchors     map[string]float64 // divergences of ops at their anchors
	done, total int64
}

func (x *measurement) step() {
	x.done++
	if x.Progress != nil {
		x.Progress(x.done, x.total)
	}
}

// table measures the options of the embedding table.
func (x *measurement) table(ctx context.Context) error {
	e, err := x.model.LoadTable()
	if err != nil {
		return err
	}
	st, err := x.tableStats(ctx, x.model)
	if err != nil {
		return err
	}
	s := Sensitivity{Tensor: e.Weight.Tensor, Rows: e.Rows, Cols: e.Cols, Lookup: true}
	for _, spec := range x.Measuring.Options(e.Weight, true) {
		_, hat, err := x.coder.encode(matrixOf(e), spec, st)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Tensor, err)
		}
		opt := Option{Spec: spec}
		if opt.KL, err = x.probe.table(ctx, hat); err != nil {
			return err
		}
		s.Options = append(s.Options, opt)
	}
	x.list = append(x.list, s)
	x.step()
	return nil
}

func matrixOf(l *forward.Linear) quant.Matrix {
	return quant.Matrix{Rows: l.Rows, Cols: l.Cols, Data: l.W}
}

// visit measures the linears that read an input.
func (x *measurement) visit(ctx context.Context, in *input, st *quant.Stats) error {
	if st == nil {
		return nil // the table is measured separately
	}
	for _, l := range in.linears {
		s, err := x.linear(ctx, in, l, st)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Weight.Tensor, err)
		}
		x.list = append(x.list, s)
		x.step()
	}
	return nil
}

func (x *measurement) linear(ctx context.Context, in *input, l *forward.Linear, st *quant.Stats) (Sensitivity, error) {
	s := Sensitivity{Tensor: l.Weight.Tensor, Rows: l.Rows, Cols: l.Cols}
	sample := everyRow(l, sampleStep)
	total := form(sample.Data, nil, sample.Rows, sample.Cols, st.Hessian, x.Threads)
	errorOf := func(spec quant.Spec) (float64, error) {
		_, hat, err := (&coder{quantizer: x.quick, threads: 1, tally: effort.TallyOf(ctx)}).encode(sample, spec, st)
		if err != nil || total == 0 {
			return 0, err
		}
		return form(sample.Data, hat, sample.Rows, sample.Cols, st.Hessian, 1) / total, nil
	}
	// A sample is small: options are processed in parallel, each by one thread.
	at := anchor(x.Scale, l.Cols)
	specs := append([]quant.Spec{at}, x.Measuring.Options(l.Weight, false)...)
	errors, failed := make([]float64, len(specs)), make([]error, len(specs))
	kernel.Parallel(x.Threads, len(specs), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			errors[i], failed[i] = errorOf(specs[i])
		}
	})
	for i, err := range failed {
		if err != nil {
			return s, fmt.Errorf("%v: %w", specs[i], err)
		}
	}
	base := errors[0]
	_, hat, err := x.coder.encode(matrixOf(l), at, st)
	if err != nil {
		return s, err
	}
	float := l.W
	l.Set(hat)
	kl, err := x.probe.from(ctx, in.layer, l)
	l.Set(float)
	if err != nil {
		return s, err
	}
	x.anchors[s.Tensor] = kl
	for i, e := range errors[1:] {
		opt := Option{Spec: specs[i+1], Error: e}
		if base > 0 {
			opt.KL = kl * e / base
		}
		s.Options = append(s.Options, opt)
	}
	zerolog.Ctx(ctx).Debug().Str("tensor", s.Tensor).Float64("kl", kl).Float64("error", base).Msg("measured")
	return s, nil
}

// everyRow returns every n-th row, but at least encodeRows of them if there are that many.
func everyRow(l *forward.Linear, n int) quant.Matrix {
	n = max(1, min(n, l.Rows/encodeRows))
	m := quant.Matrix{Rows: (l.Rows + n - 1) / n, Cols: l.Cols}
	for r := 0; r < l.Rows; r += n {
		m.Data = append(m.Data, l.W[r*l.Cols:(r+1)*l.Cols]...)
	}
	return m
}
