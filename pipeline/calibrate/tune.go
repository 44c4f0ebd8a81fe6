package calibrate

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

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
// The result is written to o.Dir, like that of [Quantize]; f does not change.
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
	t := &tuning{Options: o, Scheme: s, Distill: s.Chain.Tuner, source: src}
	if t.teacher, err = forward.New(o.Decoder, o.Source, o.Threads); err != nil {
		return nil, err
	}
	if t.student, err = forward.New(o.Decoder, src, o.Threads); err != nil {
		return nil, err
	}
	if err := t.open(f); err != nil {
		return nil, err
	}
	for t.step = 0; t.step < t.Steps; t.step++ {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		kl, err := t.descend(ctx)
		if err != nil {
			return nil, err
		}
		zerolog.Ctx(ctx).Debug().Int("step", t.step).Float64("kl", kl).Msg("tuned")
		if o.Progress != nil {
			o.Progress(int64(t.step+1), int64(t.Steps))
		}
	}
	return t.write(f)
}

// tuning is the state of Tune.
type tuning struct {
	Options
	Scheme
	*quant.Distill
	source           tensor.Source
	teacher, student *forward.Model
	step             int

	matrices  map[string]*tunedMatrix
	order     []*tunedMatrix
	gammas    map[string]*parameters
	originals map[string][]float32 // of gammas

	table          *tunedMatrix // the lookup table for tokens
	teachers       []*forward.Layer
	students       []*forward.Layer
	thead, shead   *forward.Head
	lookup         *forward.Embedding // of the student
	embedding      *forward.Linear    // of the student
	text           *forward.Embedding // of the teacher
	norms          []*forward.Norm    // of the student
	gradientBuffer []float32
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

// parameters are numbers that Adam tunes, with the running means of their gradients.
type parameters struct {
	value, gradient, mean, square []float32
}

func newParameters(n int) *parameters {
	return &parameters{make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)}
}

// Adam's constants (arXiv 1412.6980).
const (
	adamMean, adamSquare = 0.9, 0.999
	adamFloor            = 1e-12
)

// move takes one step along the gradient and clears it. step counts from 1.
func (p *parameters) move(rate float64, step, threads int) {
	m0, v0 := 1-power(adamMean, step), 1-power(adamSquare, step)
	kernel.Parallel(threads, len(p.value), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			g := float64(p.gradient[i])
			m := float64(adamMean*float64(p.mean[i])) + float64((1-adamMean)*g)
			v := float64(adamSquare*float64(p.square[i])) + float64((1-adamSquare)*float64(g*g))
			p.mean[i], p.square[i] = float32(m), float32(v)
			p.value[i] -= float32(rate * (m / m0) / (math.Sqrt(v/v0) + adamFloor))
			p.gradient[i] = 0
		}
	})
}

func power(x float64, n int) float64 {
	y := 1.0
	for range n {
		y = float64(y * x)
	}
	return y
}

// open decodes the matrices and loads both models.
func (t *tuning) open(f *Finished) error {
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
		x.blocks = quant.NewBlocks(x.layout, spec)
		quant.Unpack(x.blocks.Codes, b[:x.layout.Codes], spec.Bits)
		quant.UnpackAlpha(x.blocks, b[x.layout.Codes:], spec)
		x.scale = newParameters(len(x.blocks.Scale))
		if !spec.Symmetric {
			x.off = newParameters(len(x.blocks.Scale))
		}
		x.weights = make([]float32, l.Rows*l.Cols)
		t.matrices[name] = x
		t.order = append(t.order, x)
		return nil
	}
	var err error
	if t.text, err = t.teacher.Embedding(); err != nil {
		return err
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
		a, err := t.teacher.LoadLayer(i)
		if err != nil {
			return err
		}
		b, err := t.student.LoadLayer(i)
		if err != nil {
			return err
		}
		t.teachers, t.students = append(t.teachers, a), append(t.students, b)
		for _, l := range b.Linears() {
			if err := add(l); err != nil {
				return err
			}
		}
		t.norms = append(t.norms, b.Norms()...)
	}
	if t.thead, err = t.teacher.LoadHead(); err != nil {
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
	return add(t.shead.Linear)
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

// set copies the weights and gammas that the parameters stand for into the student.
func (t *tuning) set() {
	for _, x := range t.order {
		b := x.now(false)
		rows := x.layout.Rows
		per, blocks := x.layout.Cols, x.layout.Blocks
		kernel.Parallel(t.Threads, rows, func(lo, hi int) {
			part := quant.Blocks{Codes: b.Codes[lo*per : hi*per], Scale: b.Scale[lo*blocks : hi*blocks]}
			if b.Zero != nil {
				part.Zero = b.Zero[lo*blocks : hi*blocks]
			}
			part.Dequantize(x.weights[lo*per:hi*per], x.spec)
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
		list[i] = t.Windows[(t.step*n+i)%len(t.Windows)]
	}
	return list
}

// descend takes one step, and returns the divergence before it.
func (t *tuning) descend(ctx context.Context) (float64, error) {
	t.set()
	windows := t.batch()
	length := len(windows[0])
	of := forward.Equal(len(windows), length)
	final, err := t.text.States(ctx, windows)
	if err != nil {
		return 0, err
	}
	for _, l := range t.teachers {
		if err := l.Forward(ctx, final, of); err != nil {
			return 0, err
		}
	}
	t.thead.Input(final, final)
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
	dh := make([]float32, len(h))
	width, vocab := t.Decoder.Hidden, t.Decoder.Vocab
	var loss float64
	var p []float32
	err = t.shead.Backward(ctx, dh, h, func(token int, logits []float32) error {
		rows := len(logits) / vocab
		p = grow(p, len(logits))
		if err := t.thead.Logits(ctx, p, final[token*width:(token+rows)*width]); err != nil {
			return err
		}
		loss += t.student.KLGradient(logits, p)
		effort.TallyOf(ctx).Add(effort.Element, 2*estimate.LogitFunctions*len(logits))
		return nil
	}, visitor)
	if err != nil {
		return 0, err
	}
	for i, l := range slices.Backward(t.students) {
		if err := l.Backward(ctx, dh, inputs[i], of, visitor); err != nil {
			return 0, err
		}
	}
	if err := t.lookup.Backward(ctx, dh, windows, visitor); err != nil {
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
	t.moveAll()
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
	_, c := kernel.Sincos(math.Pi * float64(t.step) / float64(t.Steps))
	rate := t.Rate * (1 + c) / 2
	for _, x := range t.order {
		x.scale.move(rate, t.step+1, t.Threads)
		if x.off != nil {
			x.off.move(rate, t.step+1, t.Threads)
		}
	}
	for _, p := range t.gammas { // independent of each other, in any order
		p.move(rate, t.step+1, t.Threads)
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
