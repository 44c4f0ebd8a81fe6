package calibrate

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/calibrate/internal/net"
	"github.com/llmexport/llmexport/quant"
	"github.com/llmexport/llmexport/runtime/kernel"
)

// input is a vector that linear layers of the model read.
type input struct {
	// name is "layers.3.attention", "layers.3.output", "layers.3.mlp", "layers.3.down" or "head".
	name string
	// layer is the index, or the number of layers for the head.
	layer int
	// linears read the vector. They belong to the stream that is being quantized: what is put into them is what the
	// ops behind them will see.
	linears []*net.Linear
}

// headInput is the name of the last input, and of the linear that reads it.
const headInput = "head"

// walk takes all windows through the model, layer by layer and, within a layer, input by input.
type walk struct {
	decoder *arch.Decoder
	model   *net.Model
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
	layer func(ctx context.Context, l *net.Layer) error
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
	return w.chunks(ctx, func(row, n int) error {
		windows := w.windows[row/length : row/length+n]
		for _, s := range []*rows{h.float, h.quantized} {
			if s == nil {
				continue
			}
			var table []float32
			if s == h.quantized {
				table = w.embedding
			}
			x, err := w.model.Embed(windows, table)
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

func (s streams) width() int {
	if s.float != nil {
		return s.float.width
	}
	return s.quantized.width
}

// runLayer shows the four inputs of a layer and advances the streams over it.
func (w *walk) runLayer(ctx context.Context, i int, h streams) error {
	float, err := w.model.Layer(i)
	if err != nil {
		return err
	}
	if w.layer != nil {
		if err := w.layer(ctx, float); err != nil {
			return err
		}
	}
	q := float                   // the layer of the quantized stream
	if w.sequential && w.cross { // both streams run
		if q, err = w.model.Layer(i); err != nil {
			return err
		}
	}
	d := w.decoder
	name := fmt.Sprintf("layers.%d.", i)
	// Attention: q, k, v and their gate, then what they make for o.
	if err := w.input(ctx, &input{name + "attention", i, q.AttentionReaders()}, h, float, q, (*net.Layer).AttentionInput); err != nil {
		return err
	}
	o, err := w.produce(ctx, h, float, q, q.O.Cols, func(l *net.Layer, dst, h []float32, windows int) {
		x := make([]float32, len(h))
		l.AttentionInput(x, h)
		l.Attend(dst, x, len(h)/d.Hidden/windows)
	})
	if err != nil {
		return err
	}
	if err := w.block(ctx, &input{name + "output", i, []*net.Linear{q.O}}, h, o, float, q, (*net.Layer).AddAttention); err != nil {
		return err
	}
	// MLP: gate and up, then what they make for down.
	if err := w.input(ctx, &input{name + "mlp", i, q.MLPReaders()}, h, float, q, (*net.Layer).MLPInput); err != nil {
		return err
	}
	p, err := w.produce(ctx, h, float, q, q.Down.Cols, func(l *net.Layer, dst, h []float32, _ int) {
		x := make([]float32, len(h))
		l.MLPInput(x, h)
		l.Product(dst, x)
	})
	if err != nil {
		return err
	}
	return w.block(ctx, &input{name + "down", i, []*net.Linear{q.Down}}, h, p, float, q, (*net.Layer).AddMLP)
}

// input shows a visit an input that is computed from the states by a norm, or is the states.
func (w *walk) input(ctx context.Context, in *input, h streams, float, quantized *net.Layer, norm func(l *net.Layer, dst, h []float32)) error {
	return w.show(ctx, in, h, func(x []float32, h []float32, isFloat bool) []float32 {
		x = grow(x, len(h))
		if isFloat {
			norm(float, x, h)
		} else {
			norm(quantized, x, h)
		}
		return x
	})
}

// show gathers the moments of an input and hands them to the visit. value makes the input from the rows of a stream.
func (w *walk) show(ctx context.Context, in *input, h streams, value func(x, h []float32, isFloat bool) []float32) error {
	if !w.wanted(in) {
		return w.visit(ctx, in, nil)
	}
	length := len(w.windows[0])
	cols := in.linears[0].Cols
	m := newMoments(cols, w.cross)
	var bufs, xs [2][]float32
	err := w.chunks(ctx, func(row, n int) error {
		var x [2][]float32 // quantized, float
		for k, s := range []*rows{h.quantized, h.float} {
			if s == nil {
				continue
			}
			bufs[k] = grow(bufs[k], n*length*s.width)
			rows, err := s.get(bufs[k], row, n*length)
			if err != nil {
				return err
			}
			xs[k] = value(xs[k], rows, k == 1)
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
		return fmt.Errorf("%s: %w", in.name, err)
	}
	return w.visit(ctx, in, st)
}

// produce computes, for all tokens, what a part of a layer makes of the states.
func (w *walk) produce(ctx context.Context, h streams, float, quantized *net.Layer, width int, make func(l *net.Layer, dst, h []float32, windows int)) (streams, error) {
	out, err := w.newStreams(width)
	if err != nil {
		return out, err
	}
	length := len(w.windows[0])
	var in, buf []float32
	err = w.chunks(ctx, func(row, n int) error {
		in, buf = grow(in, n*length*h.width()), grow(buf, n*length*width)
		for _, s := range []struct {
			from, to *rows
			l        *net.Layer
		}{{h.quantized, out.quantized, quantized}, {h.float, out.float, float}} {
			if s.from == nil {
				continue
			}
			x, err := s.from.get(in, row, n*length)
			if err != nil {
				return err
			}
			make(s.l, buf, x, n)
			if err := s.to.put(buf, row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		out.close(w.room)
	}
	return out, err
}

// block shows an input that was produced, closes it, and adds what the linear makes of it to the states.
func (w *walk) block(ctx context.Context, in *input, h, x streams, float, quantized *net.Layer, add func(l *net.Layer, h, x []float32)) error {
	defer x.close(w.room)
	err := w.show(ctx, in, x, func(_, rows []float32, _ bool) []float32 { return rows })
	if err != nil {
		return err
	}
	length := len(w.windows[0])
	var a, b []float32
	return w.chunks(ctx, func(row, n int) error {
		for _, s := range []struct {
			h, x *rows
			l    *net.Layer
		}{{h.quantized, x.quantized, quantized}, {h.float, x.float, float}} {
			if s.h == nil {
				continue
			}
			a, b = grow(a, n*length*s.h.width), grow(b, n*length*s.x.width)
			state, err := s.h.get(a, row, n*length)
			if err != nil {
				return err
			}
			x, err := s.x.get(b, row, n*length)
			if err != nil {
				return err
			}
			add(s.l, state, x)
			if kernel.NonFinite(state) >= 0 {
				return fmt.Errorf("%s: the states behind it are NaN or infinite", in.name)
			}
			if err := s.h.put(state, row); err != nil {
				return err
			}
		}
		return nil
	})
}

// head shows the input of the head.
func (w *walk) head(ctx context.Context, h streams) error {
	head, err := w.model.Head()
	if err != nil {
		return err
	}
	in := &input{headInput, len(w.decoder.Layers), []*net.Linear{head.Linear}}
	return w.show(ctx, in, h, func(x, rows []float32, _ bool) []float32 {
		x = grow(x, len(rows))
		head.Input(x, rows)
		return x
	})
}
