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
	"github.com/llmexport/llmexport/runtime/kernel"
)

// input is a vector that linear layers of the model read.
type input struct {
	// layer is the index, or the number of layers for the head.
	layer int
	// linears are the layers that read the vector. They belong to the stream being quantized: later ops read the outputs of any
	// weights put into them.
	linears []*forward.Linear
}

// String returns the name of the first matrix that reads the vector.
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
	dir     string // for activations that do not fit into memory
	room    *room
	// sequential: visit replaces weights, and later ops read the outputs of the replacements.
	sequential bool
	// cross requests the moments between the float stream and the quantized one.
	cross bool
	// embedding replaces the lookup table of the quantized stream, if not nil.
	embedding []float32
	// wanted reports whether the statistics of an input are needed; if not, visit gets nil.
	wanted func(in *input) bool
	// visit is called with every input, in order. In a sequential walk it may replace the weights of the input's linear layers.
	visit func(ctx context.Context, in *input, st *quant.Stats) error
	// layer, if not nil, is called with every layer before the walk enters it.
	layer func(ctx context.Context, l *forward.Layer) error

	streams []*stream // the quantized one first
}

// chunkTokens is how many tokens are in memory at a time, in whole windows.
const chunkTokens = 2048

// stream holds the states of the float model or of the quantized one between layers.
type stream struct {
	table  []float32 // the lookup table for tokens; nil is that of the checkpoint
	layer  *forward.Layer
	states *rows // [tokens, Hidden]
	inputs *rows // of the last linear layer of a branch, while it is visited

	a, b []float32 // rows of both
}

// read returns rows of states, valid at most until the next call.
func (s *stream) read(row, n int) ([]float32, error) {
	s.a = grow(s.a, n*s.states.width)
	return s.states.get(s.a, row, n)
}

// chunks calls f for runs of windows, with their first row.
func (w *walk) chunks(ctx context.Context, f func(row int, of forward.Windows) error) error {
	length := len(w.windows[0])
	most := max(1, chunkTokens/length)
	for at := 0; at < len(w.windows); at += most {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := f(at*length, forward.Equal(min(most, len(w.windows)-at), length)); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for every chunk of every stream, with its number of rows.
func (w *walk) each(ctx context.Context, f func(s *stream, row, n int, of forward.Windows) error) error {
	return w.chunks(ctx, func(row int, of forward.Windows) error {
		for _, s := range w.streams {
			if err := f(s, row, len(of.Lengths)*len(w.windows[0]), of); err != nil {
				return err
			}
		}
		return nil
	})
}

// newRows allocates a vector for every token.
func (w *walk) newRows(width int) (*rows, error) {
	return newRows(w.room, w.dir, len(w.windows)*len(w.windows[0]), width)
}

// run takes all windows through the model.
func (w *walk) run(ctx context.Context) error {
	if w.sequential {
		w.streams = append(w.streams, &stream{table: w.embedding})
	}
	if !w.sequential || w.cross {
		w.streams = append(w.streams, &stream{})
	}
	for _, s := range w.streams {
		var err error
		if s.states, err = w.newRows(w.decoder.Hidden); err != nil {
			return err
		}
		defer s.states.close(w.room)
	}
	if err := w.embed(ctx); err != nil {
		return err
	}
	for i := range w.decoder.Layers {
		if err := w.runLayer(ctx, i); err != nil {
			return err
		}
	}
	return w.head(ctx)
}

func (w *walk) embed(ctx context.Context) error {
	e, err := w.model.Embedding()
	if err != nil {
		return err
	}
	length := len(w.windows[0])
	return w.each(ctx, func(s *stream, row, n int, _ forward.Windows) error {
		e.Table = s.table
		x, err := e.States(ctx, w.windows[row/length:(row+n)/length])
		if err != nil {
			return err
		}
		return s.states.put(x, row)
	})
}

// runLayer visits the inputs of a layer and advances the streams through it.
func (w *walk) runLayer(ctx context.Context, i int) (err error) {
	for _, s := range w.streams {
		if s.layer, err = w.model.LoadLayer(i); err != nil {
			return err
		}
	}
	quantized := w.streams[0].layer
	if w.layer != nil {
		if err := w.layer(ctx, quantized); err != nil {
			return err
		}
	}
	for b := range quantized.Branches() {
		inputs := quantized.Inputs(b)
		last := len(inputs) - 1
		for _, linears := range inputs[:last] {
			err := w.show(ctx, &input{i, linears}, func(s *stream, row, n int, of forward.Windows) ([]float32, error) {
				h, err := s.read(row, n)
				if err != nil {
					return nil, err
				}
				s.b = grow(s.b, n*linears[0].Cols)
				return s.b, s.layer.Read(ctx, s.b, h, of, b, linears[0])
			})
			if err != nil {
				return err
			}
		}
		if err := w.advance(ctx, &input{i, inputs[last]}, b); err != nil {
			return err
		}
	}
	return nil
}

// advance visits the last input of a branch and adds the branch's output to the states. The input is kept in between, because
// computing it is most of the work.
func (w *walk) advance(ctx context.Context, in *input, branch int) (err error) {
	last := in.linears[0]
	for _, s := range w.streams {
		if s.inputs, err = w.newRows(last.Cols); err != nil {
			return err
		}
		defer s.inputs.close(w.room)
	}
	if err := w.each(ctx, func(s *stream, row, n int, of forward.Windows) error {
		h, err := s.read(row, n)
		if err != nil {
			return err
		}
		s.b = grow(s.b, n*last.Cols)
		return cmp.Or(s.layer.Read(ctx, s.b, h, of, branch, last), s.inputs.put(s.b, row))
	}); err != nil {
		return err
	}
	kept := func(s *stream, row, n int, _ forward.Windows) ([]float32, error) {
		s.b = grow(s.b, n*last.Cols)
		return s.inputs.get(s.b, row, n)
	}
	if err := w.show(ctx, in, kept); err != nil {
		return err
	}
	return w.each(ctx, func(s *stream, row, n int, of forward.Windows) error {
		x, err := kept(s, row, n, of)
		if err != nil {
			return err
		}
		h, err := s.read(row, n)
		if err != nil {
			return err
		}
		if err := s.layer.Add(ctx, h, x, of, branch); err != nil {
			return err
		}
		if kernel.NonFinite(h) >= 0 {
			return fmt.Errorf("%s: the states after it are NaN or infinite", in)
		}
		return s.states.put(h, row)
	})
}

// value returns rows of an input in a stream.
type value func(s *stream, row, n int, of forward.Windows) ([]float32, error)

// show gathers the moments of an input and passes them to visit.
func (w *walk) show(ctx context.Context, in *input, value value) error {
	if !w.wanted(in) {
		return w.visit(ctx, in, nil)
	}
	length, cols, tally := len(w.windows[0]), in.linears[0].Cols, effort.TallyOf(ctx)
	m := newMoments(cols, w.cross)
	err := w.chunks(ctx, func(row int, of forward.Windows) (err error) {
		n := len(of.Lengths) * length
		x := make([][]float32, len(w.streams))
		for k, s := range w.streams {
			if x[k], err = value(s, row, n, of); err != nil {
				return err
			}
		}
		m.add(x[0][:n*cols], x[len(x)-1][:n*cols], length, w.skip, w.threads)
		tally.AddWork(estimate.Moments(n, cols, w.cross))
		return nil
	})
	if err != nil {
		return err
	}
	st, err := m.stats(w.threads)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	return w.visit(ctx, in, st)
}

// head visits the input of the head.
func (w *walk) head(ctx context.Context) error {
	head, err := w.model.LoadHead()
	if err != nil {
		return err
	}
	in := &input{len(w.decoder.Layers), []*forward.Linear{head.Linear}}
	return w.show(ctx, in, func(s *stream, row, n int, _ forward.Windows) ([]float32, error) {
		h, err := s.read(row, n)
		if err != nil {
			return nil, err
		}
		s.b = grow(s.b, len(h))
		head.Input(s.b, h)
		return s.b, nil
	})
}
