package calibrate

import (
	"cmp"
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/effort"
	"github.com/llmexport/llmexport/pipeline/estimate"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Showing is a tower or an ear, and the pictures or clips that calibration shows to it.
type Showing struct {
	// Name begins the names of its sites in reports.
	Name  string
	Tower *arch.Tower // or nil
	Ear   *arch.Ear   // or nil
	// Sizes describe the pictures or clips, without their values.
	Sizes []forward.Shown
	// Read returns the values of one of them.
	Read func(i int) ([]float32, error)
}

// Prompt is a window of the text model in which rows of pictures or clips take the place of tokens.
type Prompt struct {
	Window []int32
	// Pad is the token in place of which rows are put.
	Pad int32
	// Showing is the index of the tower or ear, Items are the indices of its pictures or clips, in order, and Grids their heights and widths
	// in rows if it reads patches.
	Showing int
	Items   []int
	Grids   [][2]int
}

// open returns the encoder for weights of a source, and the layers that it has.
func (s *Showing) open(src tensor.Source, threads int) (*forward.Encoder, error) {
	if s.Ear != nil {
		e, err := forward.NewEar(s.Ear, src, threads)
		if err != nil {
			return nil, err
		}
		return e.Encoder(), nil
	}
	t, err := forward.NewTower(s.Tower, src, threads)
	if err != nil {
		return nil, err
	}
	return t.Encoder(), nil
}

// layers describes the layers as a decoder without a head.
func (s *Showing) layers() *arch.Decoder {
	if s.Ear != nil {
		return &arch.Decoder{Hidden: s.Ear.Hidden, Layers: s.Ear.Layers, Tied: true}
	}
	return &arch.Decoder{Hidden: s.Tower.Hidden, Layers: s.Tower.Layers, Tied: true}
}

// linears calls f with every linear layer.
func (s *Showing) linears(src tensor.Source, f func(l *arch.Linear)) error {
	e, err := s.open(src, 1)
	if err != nil {
		return err
	}
	groups := append(e.Before(), e.Final()...)
	for i := range s.layers().Layers {
		groups = append(groups, e.Deep(i)...)
	}
	for _, g := range groups {
		for _, l := range g {
			f(&arch.Linear{Weight: l.Weight})
		}
	}
	d := s.layers()
	d.Linears(func(_ string, l *arch.Linear) {
		if l != &d.Head {
			f(l)
		}
	})
	return nil
}

// shown is a walk of pictures or clips through their tower or ear.
type shown struct {
	*Showing
	*walk
	source   tensor.Source
	encoders []*forward.Encoder // of the streams
	// width is that of what rows receive if they are kept, or 0: what the items become, in the streams. Rows of item i begin at starts[i].
	width  int
	rows   []*rows
	starts []int
	adding int // layers so far that have added to rows
}

// show prepares a walk, whose caller sets how inputs are visited. The rows, of width elements, are kept if that is not 0.
func (o *Options) show(s *Showing, src tensor.Source, width int) (*shown, error) {
	x := &shown{Showing: s, source: src, starts: []int{0}, width: width}
	e, err := s.open(src, o.Threads)
	if err != nil {
		return nil, err
	}
	x.walk = o.walk(e.Model())
	x.walk.decoder, x.walk.windows, x.walk.skip = s.layers(), nil, 0
	x.encoders = []*forward.Encoder{e}
	for i, size := range s.Sizes {
		w, err := e.Windows(0, size)
		if err != nil {
			return nil, err
		}
		n := 0
		for _, length := range w.Lengths {
			n += length
		}
		x.items = append(x.items, item{
			tokens:  n,
			windows: func(layer int) (forward.Windows, error) { return e.Windows(layer, size) },
			states:  func(ctx context.Context, k int) ([]float32, error) { return x.states(ctx, k, i) },
		})
		x.starts = append(x.starts, x.starts[i]+e.Count(size))
	}
	x.after, x.end = x.afterLayer, x.finish
	return x, nil
}

// run visits all inputs of the tower or ear. The caller closes the rows.
func (x *shown) run(ctx context.Context) error {
	if x.sequential && x.cross {
		e, err := x.open(x.source, x.threads)
		if err != nil {
			return err
		}
		x.encoders = append(x.encoders, e)
	}
	for _, linears := range x.encoders[0].Before() {
		if err := x.outside(ctx, 0, linears, func(k, i int) error {
			_, err := x.states(ctx, k, i)
			return err
		}); err != nil {
			return err
		}
	}
	return x.walk.run(ctx)
}

// states returns those of an item before the layers.
func (x *shown) states(ctx context.Context, k, i int) ([]float32, error) {
	s := x.Sizes[i]
	var err error
	if s.Values, err = x.Read(i); err != nil {
		return nil, err
	}
	return x.encoders[k].States(ctx, s)
}

// outside visits linear layers that are not in a layer; compute computes with what they read of an item.
func (x *shown) outside(ctx context.Context, layer int, linears []*forward.Linear, compute func(k, i int) error) error {
	in := &input{layer: layer, linears: linears}
	if !x.wanted(in) {
		return x.visitInput(ctx, in, nil)
	}
	cols := linears[0].Cols
	m := newMoments(cols, x.cross)
	for i := range x.items {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var read [2][]float32
		for k, e := range x.encoders {
			var err error
			if read[k], err = e.Read(linears[0], func() error { return compute(k, i) }); err != nil {
				return err
			}
		}
		n := len(read[0]) / cols
		m.add(read[0], read[len(x.encoders)-1], n, 0, x.threads)
		effort.TallyOf(ctx).AddWork(estimate.Moments(n, cols, x.cross))
	}
	st, err := m.stats(x.threads)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	return x.visitInput(ctx, in, st)
}

// each calls f with the states of every item in every stream.
func (x *shown) each(ctx context.Context, f func(k, i int, h []float32) error) error {
	row := 0
	for i := range x.items {
		for k, s := range x.streams {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			h, err := s.read(row, x.items[i].tokens)
			if err != nil {
				return err
			}
			if err := f(k, i, h); err != nil {
				return err
			}
		}
		row += x.items[i].tokens
	}
	return nil
}

// of returns the states of an item in a stream.
func (x *shown) of(k, i int) ([]float32, error) {
	row := 0
	for _, it := range x.items[:i] {
		row += it.tokens
	}
	return x.streams[k].read(row, x.items[i].tokens)
}

// afterLayer visits what reads the states after a layer, and keeps what it adds to rows.
func (x *shown) afterLayer(ctx context.Context, layer int) error {
	groups := x.encoders[0].Deep(layer)
	if len(groups) == 0 {
		return nil
	}
	for _, linears := range groups {
		if err := x.outside(ctx, layer, linears, func(k, i int) error {
			h, err := x.of(k, i)
			if err == nil {
				_, err = x.encoders[k].DeepRows(ctx, layer, h)
			}
			return err
		}); err != nil {
			return err
		}
	}
	x.adding++
	if x.width == 0 {
		return nil
	}
	return x.each(ctx, func(k, i int, h []float32) error {
		y, err := x.encoders[k].DeepRows(ctx, layer, h)
		if err != nil {
			return err
		}
		n := x.starts[i+1] - x.starts[i]
		return x.change(k, i, func(rows []float32) ([]float32, error) {
			part := len(y) / n
			for r := range n {
				copy(rows[r*x.width+x.adding*part:][:part], y[r*part:])
			}
			return rows, nil
		})
	})
}

// finish visits what reads the states after the last layer, and makes rows of them.
func (x *shown) finish(ctx context.Context) error {
	for at, linears := range x.encoders[0].Final() {
		if err := x.outside(ctx, len(x.walk.decoder.Layers), linears, func(k, i int) error {
			h, err := x.of(k, i)
			if err == nil {
				_, err = x.encoders[k].Rows(ctx, x.Sizes[i], h, nil)
			}
			return err
		}); err != nil {
			return fmt.Errorf("projector, input %d: %w", at, err)
		}
	}
	if x.width == 0 {
		return nil
	}
	return x.each(ctx, func(k, i int, h []float32) error {
		return x.change(k, i, func(rows []float32) ([]float32, error) {
			part := x.width / (1 + x.adding)
			deep := make([][]float32, x.adding)
			for d := range deep {
				for at := (1 + d) * part; at < len(rows); at += x.width {
					deep[d] = append(deep[d], rows[at:at+part]...)
				}
			}
			return x.encoders[k].Rows(ctx, x.Sizes[i], h, deep)
		})
	})
}

// change replaces the rows of an item in a stream by what f makes of them.
func (x *shown) change(k, i int, f func(rows []float32) ([]float32, error)) error {
	if x.rows == nil {
		var err error
		if x.rows, err = x.newRows(x.starts[len(x.items)], x.width); err != nil {
			return err
		}
		if err := clearRows(x.rows); err != nil {
			return err
		}
	}
	rows, err := x.item(k, i)
	if err != nil {
		return err
	}
	if rows, err = f(rows); err != nil {
		return err
	}
	return x.rows[k].put(rows, x.starts[i])
}

// item returns the rows of an item in a stream. They are a copy.
func (x *shown) item(k, i int) ([]float32, error) {
	n := x.starts[i+1] - x.starts[i]
	rows := make([]float32, n*x.width)
	of, err := x.rows[min(k, len(x.rows)-1)].get(rows, x.starts[i], n)
	if err != nil {
		return nil, err
	}
	return append(rows[:0], of...), nil
}

// prompted adds prompts to a walk of the text model, with rows of towers and ears in the streams.
func (w *walk) prompted(prompts []Prompt, skip int, of []*shown) {
	for _, p := range prompts {
		in := &forward.Insertion{Window: p.Window, Pad: p.Pad, Grids: p.Grids}
		insert := func(ctx context.Context, k int, h []float32) ([][]float32, error) {
			with := *in
			for _, i := range p.Items {
				rows, err := of[p.Showing].item(k, i)
				if err != nil {
					return nil, err
				}
				with.Rows = append(with.Rows, rows...)
			}
			return w.model.Insert(ctx, h, &with)
		}
		w.items = append(w.items, item{
			tokens: len(p.Window), skip: skip,
			windows: func(int) (forward.Windows, error) { return w.model.Windows(in), nil },
			states: func(ctx context.Context, k int) ([]float32, error) {
				e, err := w.streams[k].lookup.Embedding()
				if err != nil {
					return nil, err
				}
				h, err := e.States(ctx, [][]int32{p.Window})
				if err == nil {
					_, err = insert(ctx, k, h)
				}
				return h, err
			},
			deep: func(ctx context.Context, k, layer int) ([]float32, error) {
				if layer >= w.decoder.Deep {
					return nil, nil
				}
				deep, err := insert(ctx, k, make([]float32, len(p.Window)*w.decoder.Width()))
				if err != nil {
					return nil, err
				}
				return deep[layer], nil
			},
		})
	}
}

// check rejects pictures and prompts that do not fit each other.
func (o *Options) checkShown() error {
	for _, p := range o.Prompts {
		if p.Showing >= len(o.Shown) || len(p.Window) <= o.Skip {
			return fmt.Errorf("internal error: a prompt of %d tokens for tower %d of %d", len(p.Window), p.Showing, len(o.Shown))
		}
		for _, i := range p.Items {
			if i >= len(o.Shown[p.Showing].Sizes) {
				return fmt.Errorf("internal error: a prompt with picture %d of %d", i, len(o.Shown[p.Showing].Sizes))
			}
		}
	}
	return nil
}

// rowWidth is the number of elements of a row of towers, with what is added to it, if prompts have rows; otherwise 0.
func (o *Options) rowWidth() int {
	if len(o.Prompts) == 0 {
		return 0
	}
	return o.Decoder.Hidden * (1 + o.Decoder.Deep)
}

// encoders encodes the matrices of towers and ears, and returns what pictures and clips become if prompts have them.
func (q *quantization) encoders(ctx context.Context) (all []*shown, err error) {
	width := q.rowWidth()
	if !q.watching() {
		width = 0
	}
	for _, s := range q.Shown {
		open := false
		err := s.linears(q.Source, func(l *arch.Linear) { open = open || !q.Floats[l.Weight.Tensor] && !q.finished.Has(l.Weight.Tensor) })
		if err != nil {
			return all, err
		}
		if !open && width == 0 {
			continue
		}
		x, err := q.Options.show(s, q.Source, width)
		if err != nil {
			return all, err
		}
		all = append(all, x)
		q.visiting(x.walk)
		if err := cmp.Or(x.run(ctx), q.settle()); err != nil {
			return all, err
		}
	}
	return all, nil
}

// floatRows returns what pictures and clips become in the float model, for prompts; nil if there are none.
func (o *Options) floatRows(ctx context.Context, src tensor.Source) (all []*shown, err error) {
	if len(o.Prompts) == 0 {
		return nil, nil
	}
	for _, s := range o.Shown {
		x, err := o.show(s, src, o.rowWidth())
		if err != nil {
			return all, err
		}
		all = append(all, x)
		x.wanted = func(*input) bool { return false }
		x.visit = func(context.Context, *input, *quant.Stats) error { return nil }
		if err := x.run(ctx); err != nil {
			return all, err
		}
	}
	return all, nil
}

// closeShown returns the memory of rows.
func closeShown(all []*shown) {
	for _, x := range all {
		x.walk.close(x.rows)
	}
}
