// Package calibrate runs a float model over calibration text and chooses codes by its activations: it generates the model's own
// text, folds scales, encodes layer by layer after the quantized layers, and measures how much every op matters.
//
// Call [Quantize] for finished codes, [Measure] for sensitivities, [Sample] for text. Everything is float32 in one canonical
// order of summation: the same inputs give the same bytes on every machine and for any number of threads. Activations that do
// not fit the memory limit are stored in files. Finished matrices survive a kill: [Quantize] resumes after the last encoded
// matrix and gives the same bytes.
package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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

// Options are the model, the text and the resources of a calibration.
type Options struct {
	Decoder *arch.Decoder
	Source  tensor.Source
	// Windows are the calibration text, all of the same length in tokens, each an independent context.
	Windows [][]int32
	// Shown are the towers and ears that are calibrated, with what is shown to them, and Prompts further windows of the text model, of any
	// length, with rows of these; both may be empty.
	Shown   []*Showing
	Prompts []Prompt
	// Skip is the number of first tokens of a window that statistics leave out: their activations can have another magnitude, which
	// later tokens do not need.
	Skip int
	// GradientWindows is how many windows at most provide gradients; 0 stands for 32.
	GradientWindows int
	Threads         int
	// Memory bounds activations in bytes; the weights and statistics of one layer come on top.
	Memory int64
	// Dir receives finished matrices and files of activations.
	Dir string
	// Name identifies the purpose of Dir: matrices that an earlier call finished under the same name are reused.
	Name string
	// Progress is called with the number of encoded weights and of all weights; it may be nil.
	Progress func(done, total int64)
}

func (o *Options) check() error {
	if len(o.Windows) == 0 {
		return fmt.Errorf("no calibration text")
	}
	for _, w := range o.Windows {
		if len(w) != len(o.Windows[0]) || len(w) <= o.Skip {
			return fmt.Errorf("internal error: windows of %d and %d tokens, %d skipped", len(w), len(o.Windows[0]), o.Skip)
		}
	}
	return o.checkShown()
}

// Check rejects, with tensor.ErrUnsupported, a decoder on which a method of the chain is not possible.
func Check(d *arch.Decoder, chain *quant.Chain) error {
	if chain.Rotator != nil {
		return CheckRotation(d, chain.Rotator)
	}
	return nil
}

// memoryShare and weightShare are the divisors of the limit that bound activations, and the weights of a layer: above that, they are
// read when they are needed.
const memoryShare, weightShare = 6, 4

func (o *Options) walk(m *forward.Model) *walk {
	return &walk{
		decoder: o.Decoder, model: m, windows: o.Windows, skip: o.Skip, chunk: o.chunkOf(), threads: o.Threads, dir: o.Dir,
		room: &room{left: o.Memory / memoryShare, pins: map[*float32]func(){}}, weights: o.Memory / weightShare,
		wanted: func(*input) bool { return true },
	}
}

// Scheme defines how matrices are encoded.
type Scheme struct {
	Chain *quant.Chain
	// Specs holds the spec of every matrix by the name of its tensor, except those of Floats.
	Specs map[string]quant.Spec
	// Floats are the tensors that stay as they are: those that the package stores as float32 and, where only some layers are encoded, the
	// matrices of the rest of the model.
	Floats map[string]bool
	// Sequential calibrates every op on the outputs of the quantized ops before it, instead of those of the float model.
	Sequential bool
}

// coded reports whether a method chooses how a matrix is stored.
func (s *Scheme) coded(tensor string) bool { return !s.Floats[tensor] && s.Specs[tensor].Bits != 16 }

// passes reports whether all matrices of a layer stay as they are.
func (s *Scheme) passes(d *arch.Decoder, layer int) bool {
	all := true
	d.LayerLinears(layer, func(_ string, l *arch.Linear) { all = all && s.Floats[l.Weight.Tensor] })
	return all
}

// Quantize encodes all matrices of a model. It reuses files that an earlier call left in o.Dir, see [Resumable], as far as their
// checksums match.
func Quantize(ctx context.Context, o Options, s Scheme) (*Finished, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f, err := openFinished(o.Dir, o.Name, "")
	if err != nil {
		return nil, err
	}
	if n := len(f.Ops); n > 0 {
		zerolog.Ctx(ctx).Info().Int("matrices", n).Msg("resuming after the matrices of an earlier run")
	}
	if err := f.resume(); err != nil {
		return nil, err
	}
	defer f.close()
	if err := quantize(ctx, o, s, f, len(o.Decoder.Layers)); err != nil {
		return nil, err
	}
	return f, f.close()
}

// quantize encodes the matrices that f lacks, those of the first layers alone if there are more.
func quantize(ctx context.Context, o Options, s Scheme, f *Finished, layers int) (err error) {
	if o.Source, err = rewrite(ctx, o, s, f); err != nil {
		return err
	}
	m, err := forward.New(o.Decoder, o.Source, o.Threads)
	if err != nil {
		return err
	}
	q := &quantization{
		Options: o, Scheme: s, model: m, coder: coder{quantizer: s.Chain.Quantizer, threads: o.Threads, tally: effort.TallyOf(ctx)},
		finished: f, layers: layers,
	}
	o.Decoder.Linears(func(_ string, l *arch.Linear) { q.expect(l.Weight) })
	if !o.Decoder.Tied { // otherwise the head is the table
		q.expect(o.Decoder.Embedding)
	}
	for _, x := range o.Shown {
		if err := x.linears(o.Source, func(l *arch.Linear) { q.expect(l.Weight) }); err != nil {
			return err
		}
	}
	return q.run(ctx)
}

// expect counts a matrix that advance will report.
func (q *quantization) expect(w arch.Weight) {
	if !q.Floats[w.Tensor] {
		q.total += int64(w.Rows) * int64(w.Cols)
	}
}

// quantization is the state of Quantize.
type quantization struct {
	Options
	Scheme
	model       *forward.Model
	coder       coder
	finished    *Finished
	layers      int // see quantize
	done, total int64
	outputs     *outputMoments // or nil

	mu      sync.Mutex // of the following
	storing chan error // of matrices that are being stored, or nil
	stored  error      // of those before
}

// manyThreads is how many threads are more than one piece of work keeps busy, such as rows of which each follows from those before.
const manyThreads = 8

// idles reports whether pieces of work that do not depend on each other are worth their memory at the same time: each would leave a device, or
// threads, idle.
func idles(threads int) bool { return kernel.HasDevice() || threads >= manyThreads }

// store calls f, which measures matrices that read an input, and stores them in turn. Others may be encoded meanwhile, until settle
// is called, as it is before anything else reads or changes what is finished. Experts that are visited at the same time are encoded with each
// other anyway: f is called at once, and what it stores waits for its turn.
func (q *quantization) store(in *input, f func() error) error {
	if in.turn != nil || !idles(q.Threads) {
		return f()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	storing := make(chan error, 1)
	q.storing = storing
	go func() { storing <- f() }()
	return nil
}

// settle returns the error of storing matrices when they are stored. Several goroutines may call it.
func (q *quantization) settle() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.storing != nil {
		q.stored = cmp.Or(q.stored, <-q.storing)
		q.storing = nil
	}
	return q.stored
}

// open reports whether a matrix is still to be encoded by a method.
func (q *quantization) open(tensor string) bool {
	return !q.finished.Has(tensor) && q.coded(tensor)
}

func (q *quantization) run(ctx context.Context) (err error) {
	defer func() { q.outputs.close() }()
	defer func() { err = cmp.Or(err, q.settle()) }()
	of, err := q.encoders(ctx)
	defer func() { closeShown(of) }()
	if err != nil {
		return err
	}
	if err := q.table(ctx); err != nil {
		return err
	}
	if !q.watching() {
		return q.rest(ctx)
	}
	w := q.Options.walk(q.model)
	if w.lookup, err = q.lookup(); err != nil {
		return err
	}
	q.visiting(w)
	w.prompted(q.Prompts, q.Skip, of)
	if q.layers < len(q.Decoder.Layers) {
		w.after = func(_ context.Context, layer int) error {
			if layer+1 == q.layers {
				return errStopped
			}
			return nil
		}
	}
	if err = w.run(ctx); errors.Is(err, errStopped) {
		return nil
	}
	if err = cmp.Or(err, q.settle()); err == nil {
		q.warnUnseen(ctx)
	}
	return err
}

// visiting lets a walk encode the matrices that read its inputs.
func (q *quantization) visiting(w *walk) {
	w.sequential = q.Sequential
	if c, ok := q.Chain.Quantizer.(interface{ Crosses() bool }); ok {
		w.cross = q.Sequential && c.Crosses()
	}
	needs := q.Chain.Quantizer.Needs() != quant.Nothing
	w.wanted = func(in *input) bool {
		for _, l := range in.linears {
			if name := l.Weight.Tensor; needs && q.open(name) {
				return true
			}
		}
		return false
	}
	w.passes = func(layer int) bool { return q.Scheme.passes(w.decoder, layer) }
	w.experts = q.Memory / expertShare
	w.visit = func(ctx context.Context, in *input, st *quant.Stats) error {
		if err := q.settle(); err != nil {
			return err
		}
		switch {
		case !w.atHead(in):
		case q.Decoder.Tied:
			return nil // the table
		default:
			defer q.coder.release()
			return q.whole(ctx, in.linears[0], st)
		}
		c := &coder{quantizer: q.Chain.Quantizer, threads: in.threads, tally: effort.TallyOf(ctx)}
		hats, err := q.matrices(ctx, c, in, st)
		for i, hat := range hats {
			if q.Sequential {
				in.linears[i].Set(hat)
			}
		}
		return err
	}
}

// watching reports whether the codes of a matrix after the table depend on activations.
func (q *quantization) watching() bool {
	open := false
	q.Decoder.Linears(func(_ string, l *arch.Linear) {
		open = open || q.open(l.Weight.Tensor)
	})
	return open && q.Chain.Quantizer.Needs() != quant.Nothing
}

// rest encodes all matrices after the table from weights alone.
func (q *quantization) rest(ctx context.Context) error {
	encode := func(l *forward.Linear) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, err := q.matrices(ctx, &q.coder, &input{linears: []*forward.Linear{l}, threads: q.Threads}, nil)
		return err
	}
	for i := range q.Decoder.Layers {
		if q.passes(q.Decoder, i) {
			continue
		}
		if err := q.model.EachLinear(i, encode); err != nil {
			return err
		}
	}
	if q.Decoder.Tied {
		return nil
	}
	head, err := q.model.Head()
	if err != nil {
		return err
	}
	return q.whole(ctx, head.Linear, nil)
}

// whole chooses the codes of a table or a head, slab by slab, if it is not finished.
func (q *quantization) whole(ctx context.Context, l *forward.Linear, st *quant.Stats) error {
	name := l.Weight.Tensor
	if q.Floats[name] {
		return nil
	}
	if q.finished.Has(name) {
		q.advance(l.Rows, l.Cols)
		return nil
	}
	spec, st, err := q.spec(name, st)
	if err != nil {
		return err
	}
	op, sums := Op{Tensor: name, Spec: spec.String()}, squares{}
	return q.finished.write(&op, func(to *os.File) error {
		if err := q.encodeSlabs(ctx, &q.coder, to, l, spec, st, func(_ int, w quant.Matrix, hat []float32) error {
			sums.add(w, hat, st, q.Threads)
			q.advance(w.Rows, w.Cols)
			return nil
		}); err != nil {
			return err
		}
		q.errors(ctx, &op, &sums, st, l.Rows, l.Cols)
		q.encoded(ctx, &op)
		return nil
	})
}

// spec returns how a matrix is stored, and the statistics that it is encoded with. No choice of 16 bits depends on any, so an input that
// only such matrices read needs none.
func (q *quantization) spec(name string, st *quant.Stats) (quant.Spec, *quant.Stats, error) {
	spec, ok := q.Specs[name]
	if !ok {
		return spec, nil, fmt.Errorf("internal error: no spec for %s", name)
	}
	if spec.Bits == 16 {
		st = nil
	}
	return spec, st, nil
}

// errors sets the errors of a matrix [rows, cols].
func (q *quantization) errors(ctx context.Context, op *Op, sums *squares, st *quant.Stats, rows, cols int) {
	op.set(sums, st)
	if st != nil {
		effort.TallyOf(ctx).AddWork(estimate.OutputError(rows, cols))
	}
}

// encoded logs that a matrix has been encoded.
func (q *quantization) encoded(ctx context.Context, op *Op) {
	log := zerolog.Ctx(ctx).Debug()
	if op.Dead > 0 {
		log = zerolog.Ctx(ctx).Warn()
	}
	log.Str("tensor", op.Tensor).Str("spec", op.Spec).Float64("output_error", op.OutputError).Int("dead_channels", op.Dead).Msg("encoded")
}

// matrices returns the weights that the codes of the linear layers that read an input stand for, and lets c choose the codes of those that
// are not finished.
func (q *quantization) matrices(ctx context.Context, c *coder, in *input, st *quant.Stats) (hats [][]float32, err error) {
	for linears := in.linears; len(linears) > 0; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := q.settle(); err != nil {
			return nil, err
		}
		n, first := 1, linears[0]
		switch name := first.Weight.Tensor; {
		case q.Floats[name]:
			hats = append(hats, first.W)
		case q.finished.Has(name):
			hat, err := q.finished.weights(first, q.Specs)
			if err != nil {
				return nil, err
			}
			hats = append(hats, hat)
			if err := in.inTurn(func() error {
				q.advance(first.Rows, first.Cols)
				return nil
			}); err != nil {
				return nil, err
			}
		default:
			n = q.alike(linears)
			if hats, err = q.encode(ctx, c, hats, in, linears[:n], st); err != nil {
				return nil, err
			}
		}
		linears = linears[n:]
	}
	return hats, nil
}

// alike is how many of the first layers are encoded together: those that are not finished and have the same spec. A device refines rows of
// several specs at the same time, as far as there is memory for what each of them prepares.
func (q *quantization) alike(linears []*forward.Linear) int {
	first := q.Specs[linears[0].Weight.Tensor]
	specs := map[quant.Spec]bool{first: true}
	left := room{left: q.Memory / outputShare}
	for i, l := range linears {
		spec := q.Specs[l.Weight.Tensor]
		switch {
		case q.finished.Has(l.Weight.Tensor):
			return max(i, 1)
		case specs[spec]:
		case !kernel.HasDevice(), first.Bits == 16, spec.Bits == 16, spec.Bits == 0, !left.take(8 * int64(l.Cols) * int64(l.Cols)):
			return i
		}
		specs[spec] = true
	}
	return len(linears)
}

// advance reports that so many rows of a matrix are done.
func (q *quantization) advance(rows, cols int) {
	q.done += int64(rows) * int64(cols)
	if q.Progress != nil {
		q.Progress(q.done, q.total)
	}
}

// encode lets c choose the codes of some of the linear layers that read an input, and appends the weights that they stand for to hats.
func (q *quantization) encode(ctx context.Context, c *coder, hats [][]float32, in *input, linears []*forward.Linear, st *quant.Stats) ([][]float32, error) {
	var all []*encoding
	for _, l := range linears {
		name := l.Weight.Tensor
		spec, needed, err := q.spec(name, st)
		if err != nil {
			return nil, err
		}
		st = needed
		all = append(all, &encoding{Matrix: matrixOf(l), name: name, spec: spec, coupled: q.outputs.has(name)})
	}
	if err := c.encodeAll(all, st); err != nil {
		return nil, err
	}
	if err := q.refine(ctx, all, crossed(st)); err != nil {
		return nil, err
	}
	for _, e := range all {
		hats = append(hats, e.hat)
	}
	return hats, q.store(in, func() error {
		for _, e := range all {
			op, sums := Op{Tensor: e.name, Spec: e.spec.String()}, squares{}
			sums.add(e.Matrix, e.hat, st, in.threads)
			q.errors(ctx, &op, &sums, st, e.Rows, e.Cols)
			rows, cols, file := e.Rows, e.Cols, e.file
			if err := in.inTurn(func() error {
				q.encoded(ctx, &op)
				if err := q.finished.add(op, file); err != nil {
					return err
				}
				q.advance(rows, cols)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
}
