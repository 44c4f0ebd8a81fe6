package calibrate

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// input is a vector that linear layers of the model read.
type input struct {
	// layer is the index, or the number of layers for the head.
	layer int
	// linears read the vector. They belong to the stream that is being quantized: weights that are put into them are
	// those that later ops see the outputs of.
	linears []*forward.Linear
}

// String is the name of the first matrix that reads the vector.
func (in *input) String() string { return in.linears[0].Weight.Tensor }

// headInput is the name of the head among the linear layers.
const headInput = "head"

// walk takes all windows through the model, layer by layer and, within a layer, input by input.
type walk struct {
	decoder *arch.Decoder
	model   *forward.Model
	windows [][]int32
	// skip is the number of first tokens of a window that statistics leave out.
	skip    int
	threads int
	dir     string // of activations that do not fit
	room    *room
	// sequential says that visit replaces weights, and that later ops see the outputs of the replaced ones.
	sequential bool
	// cross asks for the moments between the float stream and the quantized one.
	cross bool
	// embedding replaces the lookup table of the quantized stream, if not nil.
	embedding []float32
	// wanted says whether the statistics of an input are needed; the visit then gets nil without them.
	wanted func(in *input) bool
	// visit sees every input, in order. In a sequential walk it may put other weights into the input's linears.
	visit func(ctx context.Context, in *input, st *quant.Stats) error
	// layer, if not nil, is called with every layer before the walk enters it.
	layer func(ctx context.Context, l *forward.Layer) error
}

// chunkTokens is how many tokens are held at a time, in whole windows.
const chunkTokens = 2048

// streams are the states of the float model and of the quantized one; either may be nil.
type streams struct{ float, quantized *rows }

func (s streams) close(r *room) {
	s.float.close(r)
	s.quantized.close(r)
}

// chunks calls f for runs of windows: the first row and the number of windows.
func (w *walk) chunks(ctx context.Context, f func(row, windows int) error) error {
	length := len(w.windows[0])
	most := max(1, chunkTokens/length)
	for at := 0; at < len(w.windows); at += most {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := f(at*length, min(most, len(w.windows)-at)); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) newStreams(width int) (s streams, err error) {
	n := len(w.windows) * len(w.windows[0])
	if w.sequential {
		if s.quantized, err = newRows(w.room, w.dir, n, width); err != nil {
			return s, err
		}
	}
	if !w.sequential || w.cross {
		if s.float, err = newRows(w.room, w.dir, n, width); err != nil {
			s.close(w.room)
		}
	}
	return s, err
}

// run walks through the model.
func (w *walk) run(ctx context.Context) error {
	d := w.decoder
	h, err := w.newStreams(d.Hidden)
	if err != nil {
		return err
	}
	defer h.close(w.room)
	if err := w.embed(ctx, h); err != nil {
		return err
	}
	for i := range d.Layers {
		if err := w.runLayer(ctx, i, h); err != nil {
			return err
		}
	}
	return w.head(ctx, h)
}

func (w *walk) embed(ctx context.Context, h streams) error {
	length := len(w.windows[0])
	e, err := w.model.Embedding()
	if err != nil {
		return err
	}
	return w.chunks(ctx, func(row, n int) error {
		windows := w.windows[row/length : row/length+n]
		for _, s := range []*rows{h.float, h.quantized} {
			if s == nil {
				continue
			}
			if e.Table = nil; s == h.quantized {
				e.Table = w.embedding
			}
			x, err := e.States(ctx, windows)
			if err != nil {
				return err
			}
			if err := s.put(x, row); err != nil {
				return err
			}
		}
		return nil
	})
}

// layers are those of the float model and of the quantized one; both are the same where one stream runs.
type layers struct{ float, quantized *forward.Layer }

// runLayer shows the inputs of a layer and advances the streams over it.
func (w *walk) runLayer(ctx context.Context, i int, h streams) error {
	float, err := w.model.LoadLayer(i)
	if err != nil {
		return err
	}
	if w.layer != nil {
		if err := w.layer(ctx, float); err != nil {
			return err
		}
	}
	l := layers{float, float}
	if w.sequential && w.cross { // both streams run
		if l.quantized, err = w.model.LoadLayer(i); err != nil {
			return err
		}
	}
	for b := range float.Branches() {
		inputs := l.quantized.Inputs(b)
		last := len(inputs) - 1
		for _, linears := range inputs[:last] {
			in := &input{i, linears}
			if err := w.show(ctx, in, h, l, func(ctx context.Context, l *forward.Layer, x, h []float32, n forward.Windows) ([]float32, error) {
				x = grow(x, len(h)/w.decoder.Hidden*linears[0].Cols)
				return x, l.Read(ctx, x, h, n, b, linears[0])
			}); err != nil {
				return err
			}
		}
		if err := w.advance(ctx, &input{i, inputs[last]}, h, l, b); err != nil {
			return err
		}
	}
	return nil
}

// advance shows the last input of a branch and adds the branch's output to the states. The input is kept from the one to
// the other, as it takes most of the work.
func (w *walk) advance(ctx context.Context, in *input, h streams, l layers, branch int) error {
	last := in.linears[0]
	x, err := w.newStreams(last.Cols)
	if err != nil {
		return err
	}
	defer x.close(w.room)
	var a, b []float32
	err = w.both(ctx, h, x, l, func(l *forward.Layer, h, x *rows, row int, n forward.Windows) error {
		tokens := w.tokens(n)
		a, b = grow(a, tokens*h.width), grow(b, tokens*x.width)
		states, err := h.get(a, row, tokens)
		if err == nil {
			err = l.Read(ctx, b, states, n, branch, last)
		}
		if err == nil {
			err = x.put(b, row)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := w.show(ctx, in, x, l, func(_ context.Context, _ *forward.Layer, _, x []float32, _ forward.Windows) ([]float32, error) {
		return x, nil
	}); err != nil {
		return err
	}
	return w.both(ctx, h, x, l, func(l *forward.Layer, h, x *rows, row int, n forward.Windows) error {
		tokens := w.tokens(n)
		a, b = grow(a, tokens*h.width), grow(b, tokens*x.width)
		states, err := h.get(a, row, tokens)
		if err != nil {
			return err
		}
		inputs, err := x.get(b, row, tokens)
		if err == nil {
			err = l.Add(ctx, states, inputs, n, branch)
		}
		if err != nil {
			return err
		}
		if kernel.NonFinite(states) >= 0 {
			return fmt.Errorf("%s: the states after it are NaN or infinite", in)
		}
		return h.put(states, row)
	})
}

// both calls f for every chunk of the streams that there are.
func (w *walk) both(ctx context.Context, h, x streams, l layers, f func(l *forward.Layer, h, x *rows, row int, n forward.Windows) error) error {
	return w.chunks(ctx, func(row, windows int) error {
		n := forward.Equal(windows, len(w.windows[0]))
		if h.quantized != nil {
			if err := f(l.quantized, h.quantized, x.quantized, row, n); err != nil {
				return err
			}
		}
		if h.float == nil {
			return nil
		}
		return f(l.float, h.float, x.float, row, n)
	})
}

func (w *walk) tokens(n forward.Windows) int { return len(n.Lengths) * len(w.windows[0]) }

// value makes an input from rows of a stream, in x if that is large enough.
type value func(ctx context.Context, l *forward.Layer, x, rows []float32, n forward.Windows) ([]float32, error)

// show gathers the moments of an input and hands them to the visit.
func (w *walk) show(ctx context.Context, in *input, h streams, l layers, of value) error {
	if !w.wanted(in) {
		return w.visit(ctx, in, nil)
	}
	length := len(w.windows[0])
	cols := in.linears[0].Cols
	m := newMoments(cols, w.cross)
	var bufs, xs [2][]float32
	err := w.chunks(ctx, func(row, n int) error {
		var x [2][]float32 // quantized, float
		for k, s := range []struct {
			*rows
			*forward.Layer
		}{{h.quantized, l.quantized}, {h.float, l.float}} {
			if s.rows == nil {
				continue
			}
			bufs[k] = grow(bufs[k], n*length*s.width)
			rows, err := s.get(bufs[k], row, n*length)
			if err != nil {
				return err
			}
			if xs[k], err = of(ctx, s.Layer, xs[k], rows, forward.Equal(n, length)); err != nil {
				return err
			}
			x[k] = xs[k]
		}
		if x[0] == nil {
			x[0] = x[1]
		}
		for i := range n {
			from, to := i*length*cols, (i+1)*length*cols
			var f []float32
			if w.cross {
				f = x[1][from:to]
			}
			m.add(x[0][from:to], f, length, w.skip, w.threads)
		}
		return nil
	})
	if err != nil {
		return err
	}
	st, err := m.stats()
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	return w.visit(ctx, in, st)
}

// head shows the input of the head.
func (w *walk) head(ctx context.Context, h streams) error {
	head, err := w.model.LoadHead()
	if err != nil {
		return err
	}
	in := &input{len(w.decoder.Layers), []*forward.Linear{head.Linear}}
	return w.show(ctx, in, h, layers{}, func(_ context.Context, _ *forward.Layer, x, rows []float32, _ forward.Windows) ([]float32, error) {
		x = grow(x, len(rows))
		head.Input(x, rows)
		return x, nil
	})
}
