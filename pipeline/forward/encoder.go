package forward

import (
	"context"
	"errors"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// Shown is a picture in the form in which a tower takes it, or a clip.
type Shown struct {
	// Values are pixels [3, Size, Size], patches in the order of cells, or features [Mels, frames].
	Values []float32
	// Height and Width are those of a grid of patches, or Width the frames of a clip; otherwise 0.
	Height, Width int
}

// Encoder is a tower or an ear taken apart for calibration: states before its layers, the layers, and rows of states. Its linear layers
// outside of the layers can be replaced, and their inputs be read. It belongs to one goroutine at a time.
type Encoder struct {
	tower *Tower // or nil
	ear   *Ear
	outer *outer // of either
}

// Encoder returns the tower taken apart.
func (t *Tower) Encoder() *Encoder {
	e := &Encoder{tower: &Tower{outer{pass: t.pass}, t.tower, t.square, t.stages}}
	e.outer = &e.tower.outer
	e.hold()
	return e
}

// Encoder returns the ear taken apart.
func (e *Ear) Encoder() *Encoder {
	x := &Encoder{ear: &Ear{outer{pass: e.pass}, e.ear}}
	x.outer = &x.ear.outer
	x.hold()
	return x
}

// hold lists the linear layers outside of the layers.
func (e *Encoder) hold() {
	e.outer.held = &held{linears: map[*arch.Linear]*Linear{}}
	for _, groups := range [][][]*arch.Linear{e.before(), e.final()} {
		for _, l := range slices.Concat(groups...) {
			e.outer.held.linears[l] = e.outer.pass.linearOf(l)
		}
	}
	for i := range e.outer.pass.layers {
		for _, l := range slices.Concat(e.deep(i)...) {
			e.outer.held.linears[l] = e.outer.pass.linearOf(l)
		}
	}
}

// Model returns the model whose layers are those of the encoder. It has neither table nor head.
func (e *Encoder) Model() *Model { return e.outer.pass }

// Before groups the linear layers before the layers by what they read, in the order of the computation.
func (e *Encoder) Before() [][]*Linear { return e.linears(e.before()) }

// Deep groups those that read the states after a layer but the last norm.
func (e *Encoder) Deep(layer int) [][]*Linear { return e.linears(e.deep(layer)) }

// Final groups those after the layers.
func (e *Encoder) Final() [][]*Linear { return e.linears(e.final()) }

func (e *Encoder) linears(groups [][]*arch.Linear) (all [][]*Linear) {
	for _, g := range groups {
		all = append(all, e.outer.held.all(g))
	}
	return all
}

func (e *Encoder) before() [][]*arch.Linear {
	if e.ear != nil {
		return e.ear.before()
	}
	if e.tower.stages != nil {
		return stageInputs(e.tower.tower.Stages)
	}
	return [][]*arch.Linear{{&e.tower.tower.Embedding}}
}

// stageInputs groups the matrices of stages by what they read: convolutions of all channels, attention and MLPs. Kernels of single channels are
// none.
func stageInputs(stages []arch.Stage) (groups [][]*arch.Linear) {
	for i := range stages {
		s := &stages[i]
		for k := range s.Enter {
			c := &s.Enter[k]
			if !c.Each {
				groups = append(groups, []*arch.Linear{&c.Linear})
			}
			if c.Reduce.Weight.Tensor != "" {
				groups = append(groups, []*arch.Linear{&c.Reduce}, []*arch.Linear{&c.Expand})
			}
		}
		for k := range s.Blocks {
			for b := range s.Blocks[k].Attend.Blocks() {
				if a, ok := b.(*arch.Attention); ok {
					groups = append(groups, attention{a}.inputs()...)
				}
			}
			m := &s.Blocks[k].MLP
			groups = append(groups, []*arch.Linear{&m.Up}, []*arch.Linear{&m.Down})
		}
	}
	return groups
}

func (e *Encoder) deep(layer int) [][]*arch.Linear {
	if e.ear != nil {
		return nil
	}
	for i := range e.tower.tower.Deep {
		if d := &e.tower.tower.Deep[i]; d.After == layer {
			return inputs(&d.Projector)
		}
	}
	return nil
}

func (e *Encoder) final() [][]*arch.Linear {
	if e.ear != nil && e.ear.ear.Subsampling != nil {
		return [][]*arch.Linear{{&e.ear.ear.Between}, {&e.ear.ear.Out}}
	}
	if e.ear != nil {
		return [][]*arch.Linear{{&e.ear.ear.Out}}
	}
	groups := inputs(&e.tower.tower.Projector)
	if s := e.tower.tower.Slices; s != nil {
		a := &s.Attention
		groups = append([][]*arch.Linear{{&s.Enter}, {&a.V}, {&a.Q}, {&a.K}, {&a.O}}, groups...)
	}
	return groups
}

// inputs groups the linear layers of a projector by what they read.
func inputs(p *arch.Projector) (groups [][]*arch.Linear) {
	for i := range p.Front {
		groups = append(groups, []*arch.Linear{&p.Front[i]})
	}
	in := []*arch.Linear{&p.In}
	if p.Gate.Weight.Tensor != "" {
		in = append(in, &p.Gate)
	}
	groups = append(groups, in)
	if p.Out.Weight.Tensor != "" {
		groups = append(groups, []*arch.Linear{&p.Out})
	}
	return groups
}

// Windows describes the states of a picture or clip, whose values are not read, in a layer.
func (e *Encoder) Windows(layer int, s Shown) (Windows, error) {
	switch {
	case e.ear != nil:
		return e.ear.windows(s.Width), nil
	case !e.tower.tower.Grid:
		return Equal(1, e.tower.tower.States()), nil
	}
	g, err := e.tower.grid(s.Height, s.Width)
	if err == nil && squareOf(e.tower.tower.Layers[layer]) > 0 {
		return g.squares, nil
	}
	if err != nil {
		return Windows{}, err
	}
	return g.whole, nil
}

// Count is the number of rows that a picture or clip, whose values are not read, becomes.
func (e *Encoder) Count(s Shown) int {
	switch {
	case e.ear != nil:
		return e.ear.ear.Rows(s.Width)
	case !e.tower.tower.Grid:
		return e.tower.tower.Rows()
	case e.tower.tower.Slices != nil:
		return e.tower.tower.Slices.Queries.Rows
	}
	return s.Height * s.Width / (e.tower.tower.Cell * e.tower.tower.Cell)
}

// States returns the states of a picture or clip before the layers, [states, Hidden].
func (e *Encoder) States(ctx context.Context, s Shown) ([]float32, error) {
	switch {
	case e.ear != nil:
		return e.ear.begin(ctx, s.Values)
	case e.tower.stages != nil:
		return e.tower.staged(ctx, s.Values)
	case !e.tower.tower.Grid:
		return e.tower.embed(ctx, s.Values)
	}
	g, err := e.tower.grid(s.Height, s.Width)
	if err != nil {
		return nil, err
	}
	return e.tower.gridStates(ctx, g, s.Values)
}

// DeepRows returns what is added to rows of a picture for the states x after a layer; nil where that is nothing.
func (e *Encoder) DeepRows(ctx context.Context, layer int, x []float32) ([]float32, error) {
	if e.ear != nil {
		return nil, nil
	}
	return e.tower.deepRows(ctx, layer, x)
}

// Rows returns the rows of a picture or clip, whose values are not read, for its states x after the layers, and for what DeepRows
// returned, in order.
func (e *Encoder) Rows(ctx context.Context, s Shown, x []float32, deep [][]float32) ([]float32, error) {
	x = slices.Clone(x)
	switch {
	case e.ear != nil:
		return e.ear.finish(ctx, x, s.Width)
	case !e.tower.tower.Grid:
		return e.tower.finish(ctx, x)
	}
	g, err := e.tower.grid(s.Height, s.Width)
	if err != nil {
		return nil, err
	}
	return e.tower.gridFinish(ctx, g, x, deep)
}

// Read returns the vectors that a linear layer outside of the layers reads while run computes with the encoder. Stages, where each layer reads
// once, end there.
func (e *Encoder) Read(reader *Linear, run func() error) (x []float32, err error) {
	e.outer.observe = func(l *arch.Linear, read []float32) error {
		if l != reader.of {
			return nil
		}
		x = append(x, read...)
		if e.tower != nil && e.tower.stages != nil {
			return errRead
		}
		return nil
	}
	if err = run(); errors.Is(err, errRead) {
		err = nil
	}
	e.outer.observe = nil
	return x, err
}

// outer computes linear layers outside of the layers of a tower or an ear.
type outer struct {
	pass    *Model // of the layers
	held    *held  // or nil
	observe func(l *arch.Linear, x []float32) error
}

// through applies a layer of a stage, with the weights that replace the model's.
func (o *outer) through(ctx context.Context, l *Layer, h []float32, w Windows) error {
	l.held = o.held
	return l.each(ctx, h, w, func(s *space, h []float32) error {
		if o.observe != nil {
			s.observe = func(l *arch.Linear, x []float32) error { return o.observe(l, x[:s.tokens()*l.Weight.Cols]) }
		}
		return s.forward(ctx, l.branches, h)
	})
}

// product returns the outputs of a linear layer for rows x.
func (o *outer) product(ctx context.Context, x []float32, l *arch.Linear) ([]float32, error) {
	if o.observe != nil {
		if err := o.observe(l, x); err != nil {
			return nil, err
		}
	}
	n := len(x) / l.Weight.Cols
	y := make([]float32, n*l.Weight.Rows)
	if h := o.held.linear(l); h != nil && h.InMemory() {
		h.apply(y, x)
		return y, nil
	}
	return y, o.pass.linear(ctx, x, n, output{l, y})
}

// norm normalises rows in place; nil leaves them as they are.
func (o *outer) norm(x []float32, n *arch.Norm) error {
	if n == nil {
		return nil
	}
	norm, err := o.pass.readNorm(n, o.pass.vector)
	if err != nil {
		return err
	}
	norm.apply(x, x)
	return nil
}
