package forward

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Ear computes what an encoder of sound makes of clips. It is safe for concurrent use.
type Ear struct {
	outer
	ear *arch.Ear
}

// NewEar is [New] for an encoder of sound.
func NewEar(e *arch.Ear, src tensor.Source, threads int) (*Ear, error) {
	if e.Subsampling != nil {
		return newConformer(e, src, threads)
	}
	if e.Mels < 1 || e.Frames < 4 || e.Frames%4 != 0 || e.Piece < 0 || e.Piece%2 != 0 {
		return nil, fmt.Errorf("%d features of at most %d frames, pieces of %d: %w", e.Mels, e.Frames, e.Piece, tensor.ErrCorrupt)
	}
	m := unchecked(&arch.Decoder{Hidden: e.Hidden, Layers: e.Layers}, src, threads)
	err := cmp.Or(
		m.checkLinear("first convolution", &e.First, e.Hidden, 3*e.Mels),
		m.checkLinear("second convolution", &e.Second, e.Hidden, 3*e.Hidden),
		m.checkNorm("norm after the layers", e.PostNorm, e.Hidden),
		m.checkLinear("projector", &e.Out, e.Out.Weight.Rows, e.Hidden),
		m.checkLayers(),
	)
	if err == nil && e.Piece == 0 {
		err = m.checkWeight("positions", e.Positions, e.Frames/2, e.Hidden)
	}
	if err != nil {
		return nil, err
	}
	return &Ear{outer{pass: m}, e}, nil
}

// Keep lets the weights stay in memory once they have been read.
func (e *Ear) Keep() { e.pass.Keep(e.pass.weights.All) }

// Rows returns the rows that take the place of a clip's tokens. features are [Mels, frames], three frames at least.
func (e *Ear) Rows(ctx context.Context, features []float32) ([]float32, error) {
	x, err := e.begin(ctx, features)
	if err != nil {
		return nil, err
	}
	n := len(features) / e.ear.Mels
	w := e.windows(n)
	for i := range e.ear.Layers {
		if err := e.pass.Layer(i).Forward(ctx, x, w); err != nil {
			return nil, err
		}
	}
	return e.finish(ctx, x, n)
}

// begin returns the states of a clip before the layers.
func (e *Ear) begin(ctx context.Context, features []float32) ([]float32, error) {
	d := e.ear
	n := len(features) / d.Mels
	if len(features) != n*d.Mels || d.Rows(n) < 1 || n > d.Frames {
		return nil, fmt.Errorf("internal error: %d features for %d frames of %d", len(features), d.Frames, d.Mels)
	}
	if d.Subsampling != nil {
		return e.subsampled(ctx, features)
	}
	if d.Piece > 0 {
		return e.pieces(ctx, features)
	}
	return e.states(ctx, frames(features, d.Mels, d.Frames), d.States(n), e.positions)
}

// windows are the states of a clip of n frames that attend to each other.
func (e *Ear) windows(n int) (w Windows) {
	d := e.ear
	if d.Piece == 0 {
		return Equal(1, d.States(n))
	}
	for at := 0; at < n; at += d.Piece {
		w.Lengths = append(w.Lengths, d.States(min(d.Piece, n-at)))
	}
	return w
}

// finish returns the rows of a clip of n frames for its states after the layers.
func (e *Ear) finish(ctx context.Context, x []float32, n int) ([]float32, error) {
	d := e.ear
	if d.Subsampling == nil {
		x = means(x, d.Hidden, d.Rows(n))
	}
	err := e.norm(x, d.PostNorm)
	if d.Subsampling != nil && err == nil {
		if x, err = e.product(ctx, x, &d.Between); err != nil {
			return nil, err
		}
		if d.BetweenNorm != nil {
			err = e.norm(x, d.BetweenNorm)
		} else {
			(&activation{Activation: arch.GELU}).apply(x, x)
		}
	}
	if err != nil {
		return nil, err
	}
	rows, err := e.product(ctx, x, &d.Out)
	e.pass.scaleAll(rows, d.Scale)
	return rows, err
}

// states returns n states before the layers, of frames with one before the first and one after the last that is read.
func (e *Ear) states(ctx context.Context, frames []float32, n int, positions func() ([]float32, error)) ([]float32, error) {
	d := e.ear
	x, err := e.convolved(ctx, &d.First, windows(frames, d.Mels))
	if err != nil {
		return nil, err
	}
	x = slices.Concat(make([]float32, d.Hidden), x, make([]float32, d.Hidden))
	if x, err = e.convolved(ctx, &d.Second, everyOther(windows(x, d.Hidden), 3*d.Hidden, n)); err != nil {
		return nil, err
	}
	table, err := positions()
	if err != nil {
		return nil, err
	}
	e.pass.addAll(x, table[:len(x)])
	return x, nil
}

// positions are the vectors of the checkpoint.
func (e *Ear) positions() ([]float32, error) { return e.pass.values(e.ear.Positions) }

// pieces returns the states of all pieces of a clip before the layers.
func (e *Ear) pieces(ctx context.Context, features []float32) (all []float32, err error) {
	d := e.ear
	table := d.Sinusoids()
	n := len(features) / d.Mels
	for at := 0; at < n; at += d.Piece {
		length := min(d.Piece, n-at)
		x := make([]float32, (length+2)*d.Mels)
		for i := range length * d.Mels {
			x[d.Mels+i] = features[i%d.Mels*n+at+i/d.Mels]
		}
		x, err := e.states(ctx, x, d.States(length), func() ([]float32, error) { return table, nil })
		if err != nil {
			return nil, err
		}
		all = append(all, x...)
	}
	return all, nil
}

// convolved applies a convolution to its windows, and GELU.
func (e *Ear) convolved(ctx context.Context, l *arch.Linear, windows []float32) ([]float32, error) {
	x, err := e.product(ctx, windows, l)
	if err != nil {
		return nil, err
	}
	(&activation{Activation: arch.GELU}).apply(x, x)
	return x, nil
}

// frames returns features as frames, with one of zeros before them and two after them: of silence as long as there are less than
// most, then of zeros. The library's clips are that long, and a mask hides their end from the layers but not from convolutions.
func frames(features []float32, mels, most int) []float32 {
	n := len(features) / mels
	out := make([]float32, (n+3)*mels)
	for i, v := range features {
		out[(1+i%n)*mels+i/n] = v
	}
	silence := max(slices.Max(features)-2, -1.5)
	for i := n; i < min(n+2, most); i++ {
		for k := range mels {
			out[(1+i)*mels+k] = silence
		}
	}
	return out
}

// windows puts three rows of width elements side by side, the elements of a channel next to each other, for every row but the first and
// the last.
func windows(x []float32, width int) []float32 {
	out := make([]float32, 0, 3*len(x))
	for at := 0; at+3*width <= len(x); at += width {
		for c := range width {
			out = append(out, x[at+c], x[at+width+c], x[at+2*width+c])
		}
	}
	return out
}

// everyOther returns n rows of width elements: the first, the third, and so on.
func everyOther(x []float32, width, n int) []float32 {
	out := make([]float32, 0, n*width)
	for i := range n {
		out = append(out, x[2*i*width:][:width]...)
	}
	return out
}

// means returns the means of n pairs of rows of width elements.
func means(x []float32, width, n int) []float32 {
	out := make([]float32, n*width)
	for i := range out {
		at := i/width*2*width + i%width
		out[i] = (x[at] + x[at+width]) / 2
	}
	return out
}
