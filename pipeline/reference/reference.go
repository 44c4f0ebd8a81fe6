// Package reference scores texts with a model in float32, directly from its description and the tensors of its checkpoint.
// Packages are verified against it. The computation is in [forward], which lists the code that the two sides of a verification
// share. This package adds tiles of logits and a memory limit.
//
// Call [New], then [Model.Score] for logits, or [Model.Hidden] and [Model.Logits] to advance two models in step and compare
// their heads tile by tile. [Model.Layers] returns the residual stream after every layer, to find the first wrong one.
//
// Work proceeds layer by layer over all windows. Weights that take up to a quarter of the memory limit are widened once and
// kept; those of larger models pass through in slabs of 16 MiB, so that the size of the checkpoint does not matter. In addition,
// only hidden states and the activations of a few windows are in memory. The numbers depend neither on the number of threads nor
// on the memory limit, nor on which windows are scored together.
package reference

import (
	"context"
	"fmt"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/forward"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxTileRows bounds a tile of logits if memory does not: more rows would not make reading a weight any cheaper per row.
const maxTileRows = 256

// Options set the resources of the computation.
type Options struct {
	// Threads is the number of goroutines that compute; values below 1 mean GOMAXPROCS.
	Threads int
	// Memory is how many bytes the model may use at a time; values below 1 mean 1 GiB. Up to a quarter goes to kept weights, or
	// else a slab of one; the buffers of the threads come next; the rest is divided equally between hidden states and activations,
	// later logits.
	Memory int64
}

// Model scores with one decoder. It is safe for concurrent use; the limits apply to each call.
type Model struct {
	decoder *arch.Decoder
	pass    *forward.Model
	memory  int64
}

// Tile holds the logits of consecutive positions of one window.
type Tile struct {
	// Window is the index of the window, Pos0 the position of the first row within it.
	Window, Pos0 int
	// Rows is the number of positions.
	Rows int
	// Logits is [Rows, Vocab], row-major; row r predicts the token at Pos0+r+1.
	Logits []float32
}

// New prepares d for computation from src, which has the tensors under the names of d, see [arch.Open]. It reads no weights; its
// errors are those of [forward.New]. The description and the source must not change afterwards.
func New(d *arch.Decoder, src tensor.Source, opts Options) (*Model, error) {
	pass, err := forward.New(d, src, opts.Threads)
	if err != nil {
		return nil, err
	}
	m := &Model{decoder: d, pass: pass, memory: opts.Memory}
	if m.memory < 1 {
		m.memory = 1 << 30
	}
	if m.keeps() {
		pass.Keep(pass.Weights().All)
	}
	return m, nil
}

// keeps reports whether widened weights are kept: a quarter of the memory must hold all of them.
func (m *Model) keeps() bool { return m.pass.Weights().All <= m.memory/4 }

// Score calls visit with the logits of every position of every window, in order of windows and positions. A window is an
// independent context: its first token has position 0. A tile is valid until visit returns; an error of visit ends the run and
// is returned unchanged.
func (m *Model) Score(ctx context.Context, windows [][]int32, visit func(Tile) error) error {
	for done := 0; done < len(windows); {
		n := m.Fit(windows[done:])
		if n == 0 {
			return fmt.Errorf("window %d: %w", done, m.tooLarge(windows[done:done+1]))
		}
		hidden, err := m.Hidden(ctx, windows[done:done+n])
		if err != nil {
			return err
		}
		if err := m.tiles(ctx, windows[done:done+n], hidden, func(t Tile) error {
			t.Window += done
			return visit(t)
		}); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// tiles evaluates the head. A run of rows may cover the ends of several windows, so that the head is read once for many short
// ones.
func (m *Model) tiles(ctx context.Context, windows [][]int32, hidden []float32, visit func(Tile) error) error {
	width, vocab := m.decoder.Hidden, m.decoder.Vocab
	total := len(hidden) / width
	longest := 0
	for _, w := range windows {
		longest = max(longest, len(w))
	}
	rows := min(total, int(max(1, min(maxTileRows, m.room(longest)/(4*int64(vocab))))))
	logits := make([]float32, rows*vocab)
	window, pos := 0, 0
	for row := 0; row < total; row += rows {
		n := min(rows, total-row)
		if err := m.Logits(ctx, logits[:n*vocab], hidden[row*width:(row+n)*width]); err != nil {
			return err
		}
		for used := 0; used < n; {
			if pos == len(windows[window]) {
				window, pos = window+1, 0
				continue
			}
			t := min(n-used, len(windows[window])-pos)
			if err := visit(Tile{Window: window, Pos0: pos, Rows: t, Logits: logits[used*vocab : (used+t)*vocab]}); err != nil {
				return err
			}
			used, pos = used+t, pos+t
		}
	}
	return nil
}

// Hidden returns the input of the head: hidden states after the final norm, [total tokens, Hidden], windows one after another.
// All windows must fit the memory limit at once, see [Model.Fit].
func (m *Model) Hidden(ctx context.Context, windows [][]int32) ([]float32, error) {
	h, err := m.forward(ctx, windows, func(int, []float32) error { return nil })
	if err != nil {
		return nil, err
	}
	return h, m.Norm(h)
}

// HiddenWith is Hidden for one window whose tokens pad become rows [n, Hidden], in order; each row of a model whose Deep is not 0 is followed
// by what is added to it after the first layers. For a model whose positions have several axes,
// grids are the heights and widths of the pictures, in rows.
func (m *Model) HiddenWith(ctx context.Context, window []int32, pad int32, rows []float32, grids [][2]int) ([]float32, error) {
	windows, in := [][]int32{window}, &forward.Insertion{Window: window, Pad: pad, Rows: rows, Grids: grids}
	h, err := m.states(ctx, windows)
	if err != nil {
		return nil, err
	}
	deep, err := m.pass.Insert(ctx, h, in)
	if err != nil {
		return nil, err
	}
	w := m.pass.Windows(in)
	w.Most = m.windows(windows).Most
	add := func(layer int, h []float32) error {
		if layer < len(deep) {
			kernel.Add(h, h, deep[layer])
		}
		return nil
	}
	if err := m.layers(ctx, h, w, add); err != nil {
		return nil, err
	}
	h = m.pass.Stream(h)
	return h, m.Norm(h)
}

// Norm applies the final norm to rows of the last states that [Model.Layers] returned, in place.
func (m *Model) Norm(hidden []float32) error {
	head, err := m.pass.Head()
	if err != nil {
		return err
	}
	head.Normed(hidden, hidden)
	return nil
}

// Layers calls visit with the residual stream after layers 0, 1, and so on: [total tokens, Hidden], windows one after another,
// valid until visit returns and not to be changed. All windows must fit the memory limit at once, see [Model.Fit]. An error of
// visit ends the run and is returned unchanged.
func (m *Model) Layers(ctx context.Context, windows [][]int32, visit func(layer int, hidden []float32) error) error {
	_, err := m.forward(ctx, windows, visit)
	return err
}

// forward runs all layers over all windows and returns the residual stream after the last one.
func (m *Model) forward(ctx context.Context, windows [][]int32, after func(layer int, hidden []float32) error) ([]float32, error) {
	h, err := m.states(ctx, windows)
	if err != nil {
		return nil, err
	}
	err = m.layers(ctx, h, m.windows(windows), func(layer int, h []float32) error { return after(layer, m.pass.Stream(h)) })
	return m.pass.Stream(h), err
}

// states returns what enters layer 0: [total tokens, Width], windows one after another. All windows must fit the memory limit.
func (m *Model) states(ctx context.Context, windows [][]int32) ([]float32, error) {
	if m.Fit(windows) < len(windows) {
		return nil, m.tooLarge(windows)
	}
	embedding, err := m.pass.Embedding()
	if err != nil {
		return nil, err
	}
	return embedding.States(ctx, windows)
}

// layers runs all layers over the states h of all windows, in place.
func (m *Model) layers(ctx context.Context, h []float32, w forward.Windows, after func(layer int, hidden []float32) error) error {
	for i := range m.decoder.Layers {
		if err := m.pass.Layer(i).Forward(ctx, h, w); err != nil {
			return err
		}
		if err := after(i, h); err != nil {
			return err
		}
	}
	return nil
}

// windows bounds the tokens that are computed at a time so that their activations fit; [Model.Fit] ensures that each window does.
func (m *Model) windows(windows [][]int32) (w forward.Windows) {
	longest := 0
	for _, x := range windows {
		w.Lengths = append(w.Lengths, len(x))
		longest = max(longest, len(x))
	}
	w.Most = max(1, min(forward.GroupTokens, m.room(longest)/max(m.pass.TokenBytes(), 1)))
	return w
}

// Logits applies the head, and the scale and bound of its results, to rows of the result of [Model.Hidden]: dst is [rows,
// Vocab], hidden [rows, Hidden].
func (m *Model) Logits(ctx context.Context, dst, hidden []float32) error {
	rows := len(hidden) / m.decoder.Hidden
	if len(hidden) != rows*m.decoder.Hidden || len(dst) != rows*m.decoder.Vocab {
		return fmt.Errorf("%d logits for %d hidden values, with %d and %d in a row", len(dst), len(hidden), m.decoder.Vocab, m.decoder.Hidden)
	}
	head, err := m.pass.Head()
	if err != nil {
		return err
	}
	return head.Logits(ctx, dst, hidden)
}

// Fit returns how many of the leading windows [Model.Hidden] and [Model.Layers] can process at once. 0 means that the first
// window alone is too long for the memory limit.
func (m *Model) Fit(windows [][]int32) int {
	var tokens int64
	longest := 0
	for i, w := range windows {
		tokens += int64(len(w))
		longest = max(longest, len(w))
		room := m.room(longest)
		if tokens*m.stateBytes() > room || int64(longest)*m.pass.TokenBytes() > room {
			return i
		}
	}
	return len(windows)
}

// stateBytes is the memory for the states of a token: those that are kept, and copies of parts of them.
func (m *Model) stateBytes() int64 {
	if m.decoder.Side == 0 {
		return 4 * int64(m.decoder.Hidden)
	}
	return 4 * int64(2*m.decoder.Width()+m.decoder.Hidden)
}

// LeastMemory returns the smallest limit in bytes with which a window of length tokens fits, see [Model.Fit].
func (m *Model) LeastMemory(length int) int64 {
	weights := m.pass.Weights()
	rest := m.pass.Overhead(length) + 2*int64(length)*max(m.stateBytes(), m.pass.TokenBytes()) + 1
	// A limit of four times the weights keeps them, which leaves too little if the rest is large.
	if least := rest + weights.Slab; least < 4*weights.All {
		return least
	}
	return rest + max(weights.Slab, weights.All)
}

// Bytes are the sizes of all weights in float32, and of the activations of a token within a layer.
func (m *Model) Bytes() (weights, token int64) { return m.pass.Weights().All, m.pass.TokenBytes() }

// room is half of the memory that the limit leaves after weights, the buffers of the threads and the rotary tables, for windows
// of up to longest tokens: one half for hidden states, the other for activations, later for logits.
func (m *Model) room(longest int) int64 {
	weights := m.pass.Weights()
	free := m.memory - m.pass.Overhead(longest)
	if m.keeps() {
		free -= weights.All
	} else {
		free -= weights.Slab
	}
	return free / 2
}

func (m *Model) tooLarge(windows [][]int32) error {
	tokens := 0
	for _, w := range windows {
		tokens += len(w)
	}
	return fmt.Errorf("the hidden states and activations of %d tokens need more than the memory limit of %d bytes", tokens, m.memory)
}

// Vectors returns the vectors that a model with a pooling makes of windows, one after another. All windows must fit the memory
// limit at once, see [Model.Fit].
func (m *Model) Vectors(ctx context.Context, windows [][]int32) ([]float32, error) {
	h, err := m.Hidden(ctx, windows)
	if err != nil {
		return nil, err
	}
	return m.pass.Pool(ctx, h, m.windows(windows).Lengths)
}
