package calibrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Tune moves the scales and zero terms of an encoded model, and the gammas of its norms, towards the float model's outputs:
// codes stay fixed, and Adam minimises the divergence of the whole model from the float model on the calibration text. It is the
// end-to-end stage of EfficientQAT (arXiv 2407.11062) with the float model as teacher. The tuned parameters are relative
// changes: s = s0 (1 + a), z = z0 + s0 b, gamma = gamma0 (1 + c). Cost: for every token a forward pass of the float model, two
// of the encoded one, and a backward pass that takes the time of three.
//
// A sixteenth of the windows is held back. The divergence on them, with scales rounded as they are stored, is measured before
// the first step and after every quarter of the steps, and the parameters with the least one are stored: on these windows the
// result is never worse than f. [LeastTuning] is the memory.
//
// The result is written to o.Dir, like that of [Quantize]; f does not change. A killed or cancelled call leaves a snapshot in
// o.Dir, from which the next one continues with the same bytes.
func Tune(ctx context.Context, o Options, s Scheme, f *Finished) (*Finished, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if s.Chain.Tuner == nil {
		return nil, fmt.Errorf("internal error: nothing of the chain tunes")
	}
	src, err := f.Source(o.Source)
	if err != nil {
		return nil, err
	}
	t := &tuning{Options: o, Scheme: s, Distill: s.Chain.Tuner, source: src, codes: f.Digest()}
	t.text, t.held = holdBack(o.Windows)
	if err := t.open(f); err != nil {
		return nil, err
	}
	if err := t.run(ctx); err != nil {
		return nil, err
	}
	if f, err = t.write(f); err != nil {
		return nil, err
	}
	return f, t.forget()
}

// heldShare is the divisor of the number of windows that are held back, judgements how often they are measured after the
// first time.
const heldShare, judgements = 16, 4

// holdBack separates the windows that choose among steps from those that tuning learns from. A single window serves both ends.
func holdBack(windows [][]int32) (text, held [][]int32) {
	n := max(1, len(windows)/heldShare)
	if len(windows) == 1 {
		return windows, windows
	}
	for i, w := range windows {
		if len(held) < n && i == (2*len(held)+1)*len(windows)/(2*n) {
			held = append(held, w)
		} else {
			text = append(text, w)
		}
	}
	return text, held
}

// LeastTuning is about how many bytes [Tune] needs, with steps of so many tokens in windows of length: the weights of the
// encoded model as rows and as panels, its codes, parameters with their running means for every block, the gradient of its
// largest matrix, logits, the states before every layer, and what a layer keeps of a group of tokens for its gradients.
func LeastTuning(d *arch.Decoder, length, tokens int) int64 {
	var weights, largest, row int64
	count := func(l *arch.Linear) {
		n := int64(l.Weight.Rows) * int64(l.Weight.Cols)
		weights, largest = weights+n, max(largest, n)
	}
	perLayer := map[string]int64{}
	d.Linears(func(name string, l *arch.Linear) {
		count(l)
		if l != &d.Head {
			parts := strings.SplitN(name, ".", 3)
			perLayer[parts[0]+"."+parts[1]] += int64(l.Weight.Rows) + int64(l.Weight.Cols)
		}
	})
	for _, n := range perLayer {
		row = max(row, n)
	}
	if !d.Tied {
		count(&arch.Linear{Weight: d.Embedding})
	}
	states := int64(max(tokens, length)) * int64(d.Width()) * int64(len(d.Layers)+6)
	group := int64(max(chunkTokens, length)) * row * 3 / 2
	return 11*weights + 4*largest + 3*min(forward.LogitBytes, 4*chunkTokens*int64(d.Vocab)) + 4*(states+group)
}

// tuning is the state of Tune.
type tuning struct {
	Options
	Scheme
	*quant.Distill
	snapshot
	codes            string // digest of what is tuned
	source           tensor.Source
	teacher, student *forward.Model
	text, held       [][]int32
	want             []float32 // outputs of the teacher on the held-back windows, before the head

	matrices  map[string]*tunedMatrix
	order     []*tunedMatrix
	gammas    map[string]*parameters
	originals map[string][]float32 // of gammas
	all       []*parameters        // in a fixed order

	table          *tunedMatrix // the lookup table for tokens
	students       []*forward.Layer
	thead, shead   *forward.Head
	lookup         *forward.Embedding // of the student
	embedding      *forward.Linear    // of the student
	norms          []*forward.Norm    // of the student
	gradientBuffer []float32
	got, wanted    []float32 // logits
}

// run takes the steps that are left, and ends with the best parameters in place.
func (t *tuning) run(ctx context.Context) error {
	final, err := t.teach(ctx, t.held)
	if err != nil {
		return err
	}
	t.want = final
	if !t.restore(ctx) {
		t.snapshot = snapshot{Judged: -1}
	}
	writing, last := time.Duration(0), time.Now()
	shown := 0
	for {
		if t.Progress != nil && t.Step > shown {
			shown = t.Step
			t.Progress(int64(t.Step), int64(t.Steps))
		}
		if err := t.advance(ctx); err != nil {
			if ctx.Err() != nil { // a step that was cut off has moved nothing
				err = errors.Join(err, t.save())
			}
			return err
		}
		if t.Judged == t.Steps {
			break
		}
		if since := time.Since(last); since > min(snapshotShare*writing, snapshotMost) {
			start := time.Now()
			if err := t.save(); err != nil {
				return err
			}
			last = time.Now()
			writing = last.Sub(start)
		}
	}
	zerolog.Ctx(ctx).Info().Float64("before", t.First).Float64("after", t.Least).Int("step", t.Best).
		Msg("tuned; divergence on the held-back windows, with the best of the steps")
	for _, p := range t.all {
		copy(p.value, p.best)
	}
	return nil
}

// advance judges the parameters if it is time to, and takes a step otherwise.
func (t *tuning) advance(ctx context.Context) error {
	every := (t.Steps + judgements - 1) / judgements
	if t.Judged < t.Step && (t.Step%every == 0 || t.Step == t.Steps) {
		return t.judge(ctx)
	}
	kl, err := t.descend(ctx)
	if err != nil {
		return err
	}
	zerolog.Ctx(ctx).Debug().Int("step", t.Step).Float64("kl", kl).Msg("tuned")
	t.moveAll()
	t.Step++
	return nil
}

// judge measures the divergence on the held-back windows, and keeps the parameters if it is the least so far.
func (t *tuning) judge(ctx context.Context) error {
	t.set(true)
	h, err := t.lookup.States(ctx, t.held)
	if err != nil {
		return err
	}
	of := forward.Equal(len(t.held), len(t.held[0]))
	for _, l := range t.students {
		if err := l.Forward(ctx, h, of); err != nil {
			return err
		}
	}
	h = t.shead.Input(h, h)
	var sum float64
	width, vocab := t.Decoder.Hidden, t.Decoder.Vocab
	rows := max(1, min(chunkTokens, forward.LogitBytes/4/vocab))
	for lo := 0; lo < len(h); lo += rows * width {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hi := min(lo+rows*width, len(h))
		t.got, t.wanted = grow(t.got, (hi-lo)/width*vocab), grow(t.wanted, (hi-lo)/width*vocab)
		if err := t.shead.Logits(ctx, t.got, h[lo:hi]); err != nil {
			return err
		}
		if err := t.thead.Logits(ctx, t.wanted, t.want[lo:hi]); err != nil {
			return err
		}
		sum += t.student.KLGradient(t.got, t.wanted)
	}
	kl := sum / float64(len(h)/width)
	zerolog.Ctx(ctx).Debug().Int("step", t.Step).Float64("kl", kl).Msg("judged on held-back windows")
	if t.Step == 0 {
		t.First = kl
	}
	if t.Step == 0 || kl < t.Least {
		t.Best, t.Least = t.Step, kl
		for _, p := range t.all {
			copy(p.best, p.value)
		}
	}
	t.Judged = t.Step
	return nil
}

// teach returns the outputs of the float model before the head, [tokens, Hidden].
func (t *tuning) teach(ctx context.Context, windows [][]int32) ([]float32, error) {
	e, err := t.teacher.Embedding()
	if err != nil {
		return nil, err
	}
	h, err := e.States(ctx, windows)
	if err != nil {
		return nil, err
	}
	of := forward.Equal(len(windows), len(windows[0]))
	for i := range t.Decoder.Layers {
		if err := t.teacher.Layer(i).Forward(ctx, h, of); err != nil {
			return nil, err
		}
	}
	h = t.thead.Input(h, h)
	return h, nil
}

// tunedMatrix is an encoded matrix with parameters for every block.
type tunedMatrix struct {
	name       string
	spec       quant.Spec
	layout     quant.Layout
	blocks     quant.Blocks // as they were encoded
	scale, off *parameters  // relative changes; off is nil for symmetric specs
	weights    []float32    // current
}

// open decodes the matrices and loads the encoded model. The float model reads its weights when it needs them, and keeps what
// the memory limit leaves room for.
func (t *tuning) open(f *Finished) (err error) {
	if t.teacher, err = forward.New(t.Decoder, t.Source, t.Threads); err != nil {
		return err
	}
	t.teacher.Keep(max(0, t.Memory-LeastTuning(t.Decoder, len(t.Windows[0]), t.Tokens)))
	if t.student, err = forward.New(t.Decoder, t.source, t.Threads); err != nil {
		return err
	}
	t.matrices, t.gammas, t.originals = map[string]*tunedMatrix{}, map[string]*parameters{}, map[string][]float32{}
	add := func(l *forward.Linear) error {
		name := l.Weight.Tensor
		if t.matrices[name] != nil || t.Floats[name] {
			return nil
		}
		spec, ok := t.Specs[name]
		if !ok {
			return fmt.Errorf("internal error: no spec for %s", name)
		}
		if spec.Bits == 16 {
			hat, err := f.weights(l, t.Specs)
			if err == nil {
				l.Set(hat)
			}
			return err
		}
		x := &tunedMatrix{name: name, spec: spec}
		var err error
		if x.layout, err = spec.Layout(l.Rows, l.Cols); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b, err := f.of(name, x.layout.Bytes())
		if err != nil {
			return err
		}
		x.blocks = quant.Unpacked(b[:x.layout.Codes], b[x.layout.Codes:], x.layout, spec)
		x.scale = newParameters(len(x.blocks.Scale))
		if !spec.Symmetric {
			x.off = newParameters(len(x.blocks.Scale))
		}
		x.weights = l.W // overwritten before it is used
		t.matrices[name] = x
		t.order = append(t.order, x)
		return nil
	}
	if t.lookup, err = t.student.Embedding(); err != nil {
		return err
	}
	if t.embedding, err = t.student.LoadTable(); err != nil {
		return err
	}
	if err := add(t.embedding); err != nil {
		return err
	}
	t.table = t.matrices[t.embedding.Weight.Tensor]
	for i := range t.Decoder.Layers {
		b, err := t.student.LoadLayer(i)
		if err != nil {
			return err
		}
		t.students = append(t.students, b)
		for _, l := range b.Linears() {
			if err := add(l); err != nil {
				return err
			}
		}
		t.norms = append(t.norms, b.Norms()...)
	}
	if t.thead, err = t.teacher.Head(); err != nil {
		return err
	}
	if t.shead, err = t.student.LoadHead(); err != nil {
		return err
	}
	t.norms = append(t.norms, t.shead.Norm)
	if n := t.lookup.Norm; n != nil {
		t.norms = append(t.norms, n)
	}
	for _, n := range t.norms { // several may share a gamma
		t.gammas[n.Weight.Tensor] = newParameters(len(n.Gamma))
		t.originals[n.Weight.Tensor] = slices.Clone(n.Gamma)
	}
	if err := add(t.shead.Linear); err != nil {
		return err
	}
	for _, x := range t.order {
		t.all = append(t.all, x.scale)
		if x.off != nil {
			t.all = append(t.all, x.off)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.gammas)) {
		t.all = append(t.all, t.gammas[name])
	}
	return nil
}

// now computes the blocks that the parameters stand for, optionally rounded to their stored precision.
func (x *tunedMatrix) now(rounded bool) quant.Blocks {
	b := quant.Blocks{Codes: x.blocks.Codes, Scale: make([]float32, len(x.blocks.Scale))}
	if x.off != nil {
		b.Zero = make([]float32, len(b.Scale))
	}
	for i, s := range x.blocks.Scale {
		b.Scale[i] = s + float32(s*x.scale.value[i])
		if x.off != nil {
			b.Zero[i] = x.blocks.Zero[i] + float32(s*x.off.value[i])
		}
		if rounded && x.spec.Scale == tensor.F16 {
			b.Scale[i] = kernel.RoundF16(b.Scale[i])
			if x.off != nil {
				b.Zero[i] = kernel.RoundF16(b.Zero[i])
			}
		}
	}
	return b
}

// gather adds the gradient of the weights to that of the parameters.
func (x *tunedMatrix) gather(dw []float32, threads int) {
	n := x.layout.BlockCols
	mid := float64(int(1) << (x.spec.Bits - 1))
	kernel.Parallel(threads, len(x.blocks.Scale), func(lo, hi int) {
		for b := lo; b < hi; b++ {
			var s, z float64
			codes := x.blocks.Codes[b*n : (b+1)*n]
			for j, g := range dw[b*n : (b+1)*n] {
				s += float64(float64(g) * (float64(codes[j]) - mid))
				z += float64(g)
			}
			x.scale.gradient[b] += float32(s * float64(x.blocks.Scale[b]))
			if x.off != nil {
				x.off.gradient[b] += float32(z * float64(x.blocks.Scale[b]))
			}
		}
	})
}

// set copies the weights and gammas that the parameters stand for into the student, optionally with scales rounded to their
// stored precision.
func (t *tuning) set(rounded bool) {
	for _, x := range t.order {
		b := x.now(rounded)
		rows, cols := x.layout.Rows, x.layout.Cols
		kernel.Parallel(t.Threads, rows, func(lo, hi int) {
			b.Slice(lo, hi, rows).Dequantize(x.weights[lo*cols:hi*cols], x.spec)
		})
	}
	put := func(l *forward.Linear) {
		if x := t.matrices[l.Weight.Tensor]; x != nil {
			l.Set(x.weights)
		}
	}
	put(t.embedding)
	t.lookup.Table = t.embedding.W
	put(t.shead.Linear)
	for _, l := range t.students {
		for _, lin := range l.Linears() {
			put(lin)
		}
	}
	for _, n := range t.norms {
		for i, g := range t.originals[n.Weight.Tensor] {
			n.Gamma[i] = g + float32(g*t.gammas[n.Weight.Tensor].value[i])
		}
	}
}

// batch returns the text of a step: windows in order, starting over when all have been used.
func (t *tuning) batch() [][]int32 {
	n := max(1, t.Tokens/len(t.Windows[0]))
	list := make([][]int32, n)
	for i := range list {
		list[i] = t.text[(t.Step*n+i)%len(t.text)]
	}
	return list
}

// descend gathers the gradients of a step, and returns the divergence.
func (t *tuning) descend(ctx context.Context) (float64, error) {
	t.set(false)
	windows := t.batch()
	length := len(windows[0])
	of := forward.Equal(len(windows), length)
	final, err := t.teach(ctx, windows)
	if err != nil {
		return 0, err
	}
	h, err := t.lookup.States(ctx, windows)
	if err != nil {
		return 0, err
	}
	var inputs [][]float32
	for _, l := range t.students {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		inputs = append(inputs, slices.Clone(h))
		if err := l.Forward(ctx, h, of); err != nil {
			return 0, err
		}
	}
	visitor := forward.Visitor{
		Wants: func(l *forward.Linear) (x, dy bool) {
			x = t.matrices[l.Weight.Tensor] != nil
			return x, x
		},
		Linear: func(l *forward.Linear, x, dy []float32) {
			if m := t.matrices[l.Weight.Tensor]; m != nil {
				m.gather(t.gradientOf(l, x, dy), t.Threads)
			}
		},
		Norm: func(n *forward.Norm, d []float64) {
			p, g := t.gammas[n.Weight.Tensor], t.originals[n.Weight.Tensor]
			for i, v := range d {
				p.gradient[i] += float32(v * float64(g[i]))
			}
		},
	}
	h = t.student.Stream(h)
	dh := make([]float32, len(h))
	width, vocab := t.Decoder.Hidden, t.Decoder.Vocab
	var loss float64
	err = t.shead.Backward(ctx, dh, h, func(token int, logits []float32) error {
		rows := len(logits) / vocab
		t.wanted = grow(t.wanted, len(logits))
		if err := t.thead.Logits(ctx, t.wanted, final[token*width:(token+rows)*width]); err != nil {
			return err
		}
		loss += t.student.KLGradient(logits, t.wanted)
		effort.TallyOf(ctx).Add(effort.Element, 2*estimate.LogitFunctions*len(logits))
		return nil
	}, visitor)
	if err != nil {
		return 0, err
	}
	dh = t.student.WithSide(dh)
	for i, l := range slices.Backward(t.students) {
		if err := l.Backward(ctx, dh, inputs[i], of, visitor); err != nil {
			return 0, err
		}
	}
	if dh, err = t.lookup.Backward(ctx, dh, windows, visitor); err != nil {
		return 0, err
	}
	if t.table != nil {
		t.gatherTable(dh, slices.Concat(windows...))
	}
	for _, x := range t.order {
		effort.TallyOf(ctx).AddWork(estimate.Rescale(len(x.weights)))
	}
	tokens := len(windows) * length
	if loss-loss != 0 {
		return 0, fmt.Errorf("tuning: the divergence is %g", loss)
	}
	return loss / float64(tokens), nil
}

// gradientOf returns the gradient of a linear layer's weights, valid until the next call.
func (t *tuning) gradientOf(l *forward.Linear, x, dy []float32) []float32 {
	t.gradientBuffer = grow(t.gradientBuffer, l.Rows*l.Cols)
	clear(t.gradientBuffer)
	l.Gradient(t.gradientBuffer, x, dy)
	return t.gradientBuffer
}

// gatherTable adds the gradients of the rows that were looked up.
func (t *tuning) gatherTable(dh []float32, tokens []int32) {
	width := t.Decoder.Hidden
	dw := grow(t.gradientBuffer, t.Decoder.Vocab*width)
	t.gradientBuffer = dw
	clear(dw)
	for i, id := range tokens {
		row := dw[int(id)*width : (int(id)+1)*width]
		kernel.Add(row, row, dh[i*width:(i+1)*width])
	}
	t.table.gather(dw, t.Threads)
}

// moveAll moves every parameter; the rate falls to 0 along half a cosine.
func (t *tuning) moveAll() {
	_, c := kernel.Sincos(math.Pi * float64(t.Step) / float64(t.Steps))
	rate := t.Rate * (1 + c) / 2
	for _, p := range t.all {
		p.move(rate, t.Step+1, t.Threads)
	}
}

// weightErrors returns the relative squared errors of the weights with the tuned scales.
func (t *tuning) weightErrors() (map[string]float64, error) {
	m, err := forward.New(t.Decoder, t.source, t.Threads)
	if err != nil {
		return nil, err
	}
	left := map[string]float64{}
	add := func(l *forward.Linear) error {
		if x, total := t.matrices[l.Weight.Tensor], distance(l.W, nil, t.Threads); x != nil && total > 0 {
			hat := make([]float32, len(l.W))
			x.now(true).Dequantize(hat, x.spec)
			left[x.name] = distance(l.W, hat, t.Threads) / total
		}
		return nil
	}
	table, err := m.LoadTable()
	if err != nil {
		return nil, err
	}
	if err := add(table); err != nil {
		return nil, err
	}
	for i := range t.Decoder.Layers {
		if err := m.EachLinear(i, add); err != nil {
			return nil, err
		}
	}
	head, err := m.LoadHead()
	if err != nil {
		return nil, err
	}
	return left, add(head.Linear)
}

// write stores codes with the tuned scales, and the tuned gammas.
func (t *tuning) write(f *Finished) (*Finished, error) {
	out := newFinished(t.Dir, t.Options.Name, tunedPrefix)
	// Its existence marks a complete result, so it is written last.
	if err := os.Remove(filepath.Join(out.dir, out.prefix+overlayFile)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	if err := out.resume(); err != nil {
		return nil, err
	}
	defer out.close()
	left, err := t.weightErrors()
	if err != nil {
		return nil, err
	}
	for _, op := range f.Ops {
		b, err := os.ReadFile(f.paths[op.Tensor])
		if err != nil {
			return nil, err
		}
		if x := t.matrices[op.Tensor]; x != nil {
			quant.PackAlpha(b[x.layout.Codes:], x.now(true), x.spec)
			op.WeightError = left[op.Tensor]
		}
		if err := out.add(op, b); err != nil {
			return nil, err
		}
	}
	o, ok := t.source.(*Overlay)
	if !ok || t.source == t.Source {
		o = NewOverlay(t.source)
	}
	for name, p := range t.gammas { // in any order: each has its own entry
		g := slices.Clone(t.originals[name])
		for i := range g {
			g[i] += float32(g[i] * p.value[i])
		}
		if err := o.ReplaceValues(name, g); err != nil {
			return nil, err
		}
	}
	if err := out.setOverlay(o); err != nil {
		return nil, err
	}
	return out, out.close()
}
