package calibrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
)

// shownDir is the directory of a measurement of towers within that of [Measure].
const shownDir = "shown"

// MeasureShown finds the sensitivities of the matrices of towers and ears, of o.Shown: the divergence of the text model's predictions after
// pictures and clips. probe are prompts with those of held, of which as many are used as have [groupTokens].
//
// The divergence is measured for groups of matrices at three bits, see [Measure]: those of a kind in a run of layers, through the rest of the
// tower and the text model. Within a group it is divided in proportion to the errors at the outputs, relative to the outputs, on o.Shown;
// other options of a matrix have its share times the ratio of their errors.
//
// Measured groups survive a kill, as in [Measure], which removes their files.
func MeasureShown(ctx context.Context, o Options, ms Measuring, held []*Showing, probe []Prompt) ([]Sensitivity, error) {
	o.Dir, o.Name = filepath.Join(o.Dir, shownDir), o.Name+"/"+shownDir
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return nil, err
	}
	x := &shownMeasurement{Options: o, Measuring: ms, held: held, of: map[string]*op{}, quick: ms.Chain.Quantizer}
	if q, ok := ms.Chain.Quantizer.(quick); ok {
		x.quick = q.Quick()
	}
	for tokens, n := 0, 0; n < len(probe) && tokens < groupTokens; n++ {
		x.probe = append(x.probe, probe[n])
		tokens += len(probe[n].Window)
	}
	var err error
	if x.steps, err = openSteps(o.Dir, o.Name); err != nil {
		return nil, err
	}
	defer func() { _ = x.steps.journal.close() }()
	var list []Sensitivity
	for _, s := range o.Shown {
		more, err := x.showing(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

// shownMeasurement is the state of MeasureShown.
type shownMeasurement struct {
	Options
	Measuring
	held    []*Showing
	probe   []Prompt
	quick   quant.Quantizer
	steps   *steps
	of      map[string]*op
	anchors *Finished
	want    *looked // of the float model for the probe, or nil
}

// shownOps lists the matrices of a tower or ear.
func (x *shownMeasurement) shownOps(s *Showing) ([]*op, error) {
	e, err := s.open(x.Source, 1)
	if err != nil {
		return nil, err
	}
	d := s.layers()
	var all []*op
	outside := func(kind string, layer int, groups [][]*forward.Linear) {
		for i, l := range slices.Concat(groups...) {
			one := &op{tensor: l.Weight.Tensor, rows: l.Rows, cols: l.Cols, kind: kind + strconv.Itoa(i), layer: layer}
			one.specs = x.Measuring.Options(l.Weight, false)
			all = append(all, one)
		}
	}
	outside("before ", 0, e.Before())
	all = append(all, opsOf(d, x.Measuring.Options)...)
	for i := range d.Layers {
		outside("deep ", i, e.Deep(i))
	}
	outside("final ", len(d.Layers), e.Final())
	return all, nil
}

// showing measures the matrices of one tower or ear.
func (x *shownMeasurement) showing(ctx context.Context, s *Showing) ([]Sensitivity, error) {
	ops, err := x.shownOps(s)
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		x.of[op.tensor] = op
	}
	dir := filepath.Join(x.Dir, s.Name)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	x.anchors = newFinished(dir, x.Name+"/"+s.Name, "")
	if err := x.anchors.resume(); err != nil {
		return nil, err
	}
	defer x.anchors.close()
	w, err := x.Options.show(s, x.Source, 0)
	if err != nil {
		return nil, err
	}
	w.wanted = func(in *input) bool {
		return slices.ContainsFunc(in.linears, func(l *forward.Linear) bool { return len(x.of[l.Weight.Tensor].specs) > 0 })
	}
	w.visit = x.visit
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	groups := groupsOf(ops, len(s.layers().Layers))
	for _, g := range groups {
		if err := x.group(ctx, s, g); err != nil {
			return nil, err
		}
	}
	zerolog.Ctx(ctx).Info().Str("of", s.Name).Int("matrices", len(ops)).Int("groups", len(groups)).
		Msg("divergences of matrices are measured for groups of them, on prompts with what calibration shows")
	var list []Sensitivity
	for _, op := range ops {
		if len(op.specs) == 0 {
			continue
		}
		one := Sensitivity{Tensor: op.tensor, Rows: op.rows, Cols: op.cols}
		for i, spec := range op.specs {
			one.Options = append(one.Options, Option{Spec: spec, KL: op.kl(i)})
		}
		list = append(list, one)
	}
	return list, nil
}

// visit estimates the errors of the linear layers that read an input, and stores their anchors.
func (x *shownMeasurement) visit(ctx context.Context, in *input, st *quant.Stats) error {
	e := &encoders{quantizer: x.quick, threads: x.Threads, tally: effort.TallyOf(ctx), stats: st, of: map[quant.Spec]quant.Encoder{}}
	for _, l := range in.linears {
		op := x.of[l.Weight.Tensor]
		if len(op.specs) == 0 {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := x.estimate(op, l, e); err != nil {
			return fmt.Errorf("%s: %w", op.tensor, err)
		}
	}
	return nil
}

// anchor is that of [Measure], or for columns that it cannot store the next spec that can.
func (x *shownMeasurement) anchor(op *op) quant.Spec {
	first := anchor(x.Scale, op.cols)
	for _, s := range []quant.Spec{first, {Bits: 3, Block: 32, Scale: x.Scale}, {Bits: 4, Block: quant.WholeRow, Scale: x.Scale}} {
		if _, err := s.Layout(op.rows, op.cols); err == nil {
			return s
		}
	}
	return quant.Spec{Bits: 8, Block: quant.WholeRow, Scale: x.Scale}
}

// estimate sets the relative error at the outputs of an op at its anchor, and the errors of its options relative to that.
func (x *shownMeasurement) estimate(op *op, l *forward.Linear, e *encoders) error {
	at := x.anchor(op)
	c, err := e.coder(at, op.cols)
	if err != nil {
		return err
	}
	c.threads = x.Threads
	file, hat, err := c.encode(matrixOf(l), at, e.stats)
	if err != nil {
		return err
	}
	if err := x.anchors.add(Op{Tensor: op.tensor, Spec: at.String()}, file); err != nil {
		return err
	}
	if total := form(l.W, nil, op.rows, op.cols, e.stats, x.Threads); total > 0 {
		op.estimate = form(l.W, hat, op.rows, op.cols, e.stats, x.Threads) / total
	}
	sample, err := rowsOf(l, op.sampled())
	if err != nil {
		return err
	}
	errors, err := e.errors(sample, append([]quant.Spec{at}, op.specs...), func(errors []float64) (sum float64) {
		for _, v := range errors {
			sum += v
		}
		return sum
	})
	if err != nil {
		return err
	}
	op.errors = make([]float64, len(op.specs))
	for i, v := range errors[1:] {
		if errors[0] > 0 {
			op.errors[i] = v / errors[0]
		}
	}
	return nil
}

// group measures the divergence of a group at its anchors.
func (x *shownMeasurement) group(ctx context.Context, s *Showing, g *group) error {
	values, err := x.steps.do(fmt.Sprintf("%s %s %d", s.Name, g.kind, g.from), func() ([]float64, error) {
		o := x.Options
		o.Shown, o.Prompts = x.held, x.probe
		if x.want == nil {
			var err error
			if x.want, err = o.look(ctx, x.Source); err != nil {
				return nil, err
			}
		}
		scheme := &Scheme{Specs: map[string]quant.Spec{}, Floats: map[string]bool{x.Decoder.Embedding.Tensor: true}}
		x.Decoder.Linears(func(_ string, l *arch.Linear) { scheme.Floats[l.Weight.Tensor] = true })
		for _, op := range x.of {
			scheme.Floats[op.tensor] = true
		}
		for _, op := range g.ops {
			scheme.Specs[op.tensor], scheme.Floats[op.tensor] = x.anchor(op), false
		}
		src, err := x.anchors.restore(x.Decoder, x.Source, scheme, s)
		if err != nil {
			return nil, err
		}
		got, err := o.look(ctx, src)
		if err != nil {
			return nil, err
		}
		seen, err := o.compare(ctx, x.want, got)
		return []float64{seen.KL}, err
	})
	if err != nil {
		return err
	}
	sum := 0.0
	for _, op := range g.ops {
		sum += op.estimate
	}
	for _, op := range g.ops {
		if op.ratio = 1; sum > 0 {
			op.ratio = values[0] / sum
		}
	}
	zerolog.Ctx(ctx).Debug().Str("of", s.Name).Str("kind", g.kind).Int("from", g.from).Int("matrices", len(g.ops)).Float64("kl", values[0]).Msg("measured")
	return nil
}
