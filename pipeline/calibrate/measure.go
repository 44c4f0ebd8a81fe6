package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
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
	// KL is the divergence in nats that the op adds when it is the only one stored this way.
	KL float64
}

// anchor is the spec in which ops of the body are measured; the divergences of their other options follow from the ratios of the
// errors. Three bits are far enough from the float model to exceed rounding noise, and near enough for the
// divergence to be quadratic in the error.
func anchor(scale tensor.DType, cols int) quant.Spec {
	s := quant.Spec{Bits: 3, Block: 64, Scale: scale}
	if cols%s.Block != 0 {
		s.Block = quant.WholeRow
	}
	return s
}

// Quick is implemented by quantizers that have a cheaper form with about the same ratio of errors between specs.
type quick interface{ Quick() quant.Quantizer }

// Measuring are the arguments of Measure.
type Measuring struct {
	Chain *quant.Chain
	// Options lists the specs that a matrix may take; a matrix without any is not measured.
	Options func(w arch.Weight, lookup bool) []quant.Spec
	// Scale is the type of scales.
	Scale tensor.DType
	// Probe is the text on which divergences are measured, in windows of one length.
	Probe [][]int32
}

// Measured is what [Measure] finds.
type Measured struct {
	Sensitivities []Sensitivity
	// Groups is how many groups of matrices were measured.
	Groups int
}

// Measure finds the sensitivity of every matrix.
//
// To second order, an error dW of a linear layer adds E[(gᵀ dW x)²] / 2 nats, where g is the gradient at its outputs of the
// log-likelihood of labels drawn from the model (its Fisher information). Errors of different rows have random signs, and squares
// of g and x are all but independent, so that leaves
//
//	½ Σ_r E[g_r²] dW_r H dW_rᵀ          H = E[x xᵀ], a sum over the rows of W
//
// (the diagonal of K-FAC, arXiv 1503.05671, for g). One forward and backward pass of some text gives all g, dW is that of an
// encoding at three bits, and other options have that estimate times the ratio of their errors, from a sample of rows. Estimates
// of the same kind of matrix are off by about the same factor. It is measured: the divergence of the model on the probe with all
// matrices of a kind, in a run of layers, at three bits. There are as many runs as cost no more than [mostPasses] of the probe
// through the model, up to one for every layer, where each matrix is measured by itself.
//
// Options of the table are estimated in the same way, by the moments that it is encoded with, and one of them is measured.
//
// Finished steps survive a kill: Measure continues after them, see [ResumableMeasure], and removes their files in the end.
func Measure(ctx context.Context, o Options, ms Measuring) (*Measured, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if len(ms.Probe) == 0 || len(ms.Probe[0]) == 0 {
		return nil, fmt.Errorf("no text to measure the divergence on")
	}
	m, err := forward.New(o.Decoder, o.Source, o.Threads)
	if err != nil {
		return nil, err
	}
	x := &measurement{Options: o, Measuring: ms, model: m, of: map[string]*op{}, quick: ms.Chain.Quantizer}
	if q, ok := ms.Chain.Quantizer.(quick); ok {
		x.quick = q.Quick()
	}
	x.ops = opsOf(o.Decoder, ms.Options)
	for _, op := range x.ops {
		x.of[op.tensor] = op
		if len(op.specs) > 0 {
			x.weights += float64(op.rows * op.cols)
		}
	}
	x.plan()
	if err := x.open(ctx); err != nil {
		return nil, err
	}
	defer x.close()
	for _, step := range []func(context.Context) error{x.gradients, x.body, x.table, x.groups} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if total := milliseconds(x.work.Total()) + 1; x.Progress != nil {
		x.Progress(total, total)
	}
	groups := len(groupsOf(x.ops, len(x.Decoder.Layers)))
	return &Measured{Sensitivities: x.list(), Groups: groups}, x.clean()
}

// ResumableMeasure are patterns of the names of files and directories from which a killed [Measure] resumes.
var ResumableMeasure = []string{measuredFile, gradientPrefix + "*", anchorsDir, shownDir}

// anchorsDir is the directory of matrices at their anchors.
const anchorsDir = "anchors"

// measurement is the state of Measure.
type measurement struct {
	Options
	Measuring
	model   *forward.Model
	quick   quant.Quantizer // for options and anchors
	ops     []*op
	of      map[string]*op // by tensor
	weights float64        // of all ops that are measured

	steps   *steps
	before  map[string]bool // steps of the body that earlier runs took
	anchors *Finished
	fisher  *fisher
	probe   *probe // for groups, or nil
	lookup  Sensitivity
	stats   *quant.Stats // of the lookup

	work     *estimate.Measurement
	done     effort.Work
	reported int64 // in milliseconds
}

// open reads what an earlier run has finished.
func (x *measurement) open(ctx context.Context) (err error) {
	if x.steps, err = openSteps(x.Dir, x.Name); err != nil {
		return err
	}
	dir := filepath.Join(x.Dir, anchorsDir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if x.anchors, err = openFinished(dir, x.Name+"/"+anchorsDir, ""); err != nil {
		return err
	}
	for i, s := range x.steps.finished {
		if tensor, ok := strings.CutPrefix(s.Name, estimateStep); ok && !x.anchors.Has(tensor) { // its file is damaged
			if err := x.steps.cut(i); err != nil {
				return err
			}
			break
		}
	}
	if n := len(x.steps.finished); n > 0 {
		zerolog.Ctx(ctx).Info().Int("steps", n).Msg("resuming after the steps of an earlier run")
	}
	return x.anchors.resume()
}

func (x *measurement) close() {
	_ = x.steps.journal.close()
	_ = x.anchors.close()
}

// clean removes the files of a finished measurement.
func (x *measurement) clean() error {
	x.close()
	for _, pattern := range ResumableMeasure {
		names, err := filepath.Glob(filepath.Join(x.Dir, pattern))
		for _, name := range names {
			err = cmp.Or(err, os.RemoveAll(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plan predicts the work, for progress.
func (x *measurement) plan() {
	options := 0
	specs := map[string]int{} // options of matrices
	for _, op := range x.ops {
		specs[op.tensor] = len(op.specs)
		options = max(options, len(op.specs))
	}
	length := len(x.Windows[0])
	c := &estimate.Calibration{
		Chain: x.Chain, Windows: len(x.Windows), Length: length, Probe: len(x.Probe),
		Bits: func(tensor string) int {
			if n, ok := specs[tensor]; ok && n == 0 {
				return 16
			}
			return 3
		},
	}
	lookups := len(x.Measuring.Options(x.Decoder.Embedding, true))
	x.work = c.Sensitivities(x.Decoder, estimate.Measuring{Options: options, Lookups: lookups, Groups: Groups(x.Decoder)})
}

// advance counts work that is done.
func (x *measurement) advance(w effort.Work) {
	x.done = x.done.Plus(w)
	x.reach(x.done)
}

// reach reports progress in milliseconds of a typical core; the end is left to the end.
func (x *measurement) reach(w effort.Work) {
	total := milliseconds(x.work.Total()) + 1
	if done := min(milliseconds(w), total-1); x.Progress != nil && done > x.reported {
		x.reported = done
		x.Progress(done, total)
	}
}

func milliseconds(w effort.Work) int64 { return int64(1000 * w.Seconds(estimate.Typical(1))) }

// body estimates the divergences of the matrices of the body, and of a head of its own, and stores their anchors.
func (x *measurement) body(ctx context.Context) error {
	for _, group := range x.experts() {
		x.fisher.share(group)
	}
	w := x.Options.walk(x.model)
	x.before = map[string]bool{}
	for _, step := range x.steps.finished[x.steps.at:] {
		x.before[step.Name] = true
	}
	w.wanted = func(in *input) bool {
		return slices.ContainsFunc(in.linears, func(l *forward.Linear) bool {
			op := x.of[l.Weight.Tensor]
			return op != nil && len(op.specs) > 0 && !x.before[op.step()]
		})
	}
	w.visit, w.background, w.experts = x.visit, true, x.Memory/expertShare
	of, err := x.floatRows(ctx, x.Source)
	defer func() { closeShown(of) }()
	if err != nil {
		return err
	}
	w.prompted(x.Prompts, x.Skip, of)
	return w.run(ctx)
}

// estimateStep begins the names of the steps that estimate divergences. The name of the tensor follows.
const estimateStep = "estimate "

func (x *op) step() string { return estimateStep + x.tensor }

// visit estimates the divergences of the linear layers that read an input.
func (x *measurement) visit(ctx context.Context, in *input, st *quant.Stats) error {
	e := &encoders{quantizer: x.quick, threads: in.threads, tally: effort.TallyOf(ctx), stats: st, of: map[quant.Spec]quant.Encoder{}}
	for _, l := range in.linears {
		op := x.of[l.Weight.Tensor]
		if op == nil || len(op.specs) == 0 {
			continue
		}
		found := sync.OnceValues(func() (*estimated, error) { return x.estimate(ctx, op, l, e) })
		if in.turn != nil && !x.before[op.step()] { // while it is the turn of others
			if _, err := found(); err != nil {
				return fmt.Errorf("%s: %w", op.tensor, err)
			}
		}
		if err := in.inTurn(func() error {
			values, err := x.steps.do(op.step(), func() ([]float64, error) {
				v, err := found()
				if err != nil {
					return nil, err
				}
				return v.values, x.keep(ctx, op, v)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", op.tensor, err)
			}
			op.estimate, op.errors = values[0], values[1:]
			x.advance(x.work.Options.Times(float64(op.rows) * float64(op.cols) / x.weights))
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// estimated is what a step finds: the divergence of an op at its anchor and the errors of its options, relative to that of the anchor; and what
// is stored at the anchor, nil if that is finished.
type estimated struct {
	values []float64
	file   []byte
}

// keep stores what was estimated.
func (x *measurement) keep(ctx context.Context, op *op, found *estimated) error {
	zerolog.Ctx(ctx).Debug().Str("tensor", op.tensor).Float64("estimate", found.values[0]).Msg("estimated")
	if found.file == nil {
		return nil
	}
	return x.anchors.add(Op{Tensor: op.tensor, Spec: anchor(x.Scale, op.cols).String()}, found.file)
}

// estimate does the work of a step.
func (x *measurement) estimate(ctx context.Context, op *op, l *forward.Linear, e *encoders) (*estimated, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	at, weights := anchor(x.Scale, op.cols), x.fisher.weights(op.tensor)
	values := make([]float64, 1+len(op.specs))
	effort.TallyOf(ctx).AddWork(estimate.OutputError(op.rows, op.cols).Times(.5))
	c, err := e.coder(at, op.cols)
	if err != nil {
		return nil, err
	}
	c.threads = e.threads
	var file []byte
	anchored := make(chan error, 1)
	encode := func() {
		var err error
		file, err = x.anchored(ctx, l, at, c, e.stats, func(first int, w quant.Matrix, hat []float32) error {
			for r, v := range forms(w.Data, hat, w.Rows, w.Cols, e.stats, e.threads) {
				values[0] += float64(float64(weights[first+r]*v) / 2)
			}
			return nil
		})
		anchored <- err
	}
	if kernel.HasDevice() { // which waits less for the CPU
		go encode()
	} else {
		encode()
	}
	errors, err := x.errors(op, l, at, weights, e)
	if err := cmp.Or(<-anchored, err); err != nil {
		return nil, err
	}
	for i, v := range errors[1:] {
		if errors[0] > 0 {
			values[1+i] = v / errors[0]
		}
	}
	return &estimated{values, file}, nil
}

// errors returns the errors of a sample of the rows of an op, at its anchor and in its options, weighted by those of the outputs.
func (x *measurement) errors(op *op, l *forward.Linear, at quant.Spec, weights []float64, e *encoders) ([]float64, error) {
	rows := op.sampled()
	sample, err := rowsOf(l, rows)
	if err != nil {
		return nil, err
	}
	return e.errors(sample, append([]quant.Spec{at}, op.specs...), func(errors []float64) (sum float64) {
		for i, v := range errors {
			sum += float64(weights[rows[i]] * v)
		}
		return sum
	})
}

// anchored calls each with the weights of a matrix and those that it has at its anchor, slab by slab, and returns the codes and scales of these,
// which c chooses; those of a matrix that is not in memory it stores.
func (x *measurement) anchored(ctx context.Context, l *forward.Linear, at quant.Spec, c *coder, st *quant.Stats,
	each func(first int, w quant.Matrix, hat []float32) error) ([]byte, error) {
	name := l.Weight.Tensor
	if x.anchors.Has(name) {
		codes, err := x.anchors.codes(l.Weight, map[string]quant.Spec{name: at})
		if err != nil {
			return nil, err
		}
		return nil, x.slabs(ctx, l, func(first int, w quant.Matrix) error {
			hat, err := codes.rows(first, w.Rows)
			if err != nil {
				return err
			}
			return each(first, w, hat)
		})
	}
	if l.W != nil {
		file, hat, err := c.encode(matrixOf(l), at, st)
		if err != nil {
			return nil, err
		}
		return file, each(0, matrixOf(l), hat)
	}
	return nil, x.anchors.write(&Op{Tensor: name, Spec: at.String()}, func(to *os.File) error {
		return x.encodeSlabs(ctx, c, to, l, at, st, each)
	})
}

// experts groups the experts of a layer by the kind of matrix.
func (x *measurement) experts() (groups [][]*op) {
	at := map[string]int{}
	for _, op := range x.ops {
		if !op.expert {
			continue
		}
		key := strconv.Itoa(op.layer) + op.kind
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], op)
	}
	return groups
}

// list returns the table and all ops that have options, in the order of the model.
func (x *measurement) list() []Sensitivity {
	list := []Sensitivity{x.lookup}
	for _, op := range x.ops {
		if len(op.specs) == 0 {
			continue
		}
		s := Sensitivity{Tensor: op.tensor, Rows: op.rows, Cols: op.cols}
		for i, spec := range op.specs {
			s.Options = append(s.Options, Option{Spec: spec, KL: op.kl(i)})
		}
		list = append(list, s)
	}
	return list
}

func matrixOf(l *forward.Linear) quant.Matrix {
	return quant.Matrix{Rows: l.Rows, Cols: l.Cols, Data: l.W}
}
