// Package reference runs a model in float32 straight from its description and the tensors of its
// checkpoint. It is the second opinion that packages are judged by: it knows neither graphs nor packages
// and shares no code with what writes or executes them but functions of runtime/kernel, which have tests of their own
// against plain loops and higher precision: products of matrices (MatMul, Packed), sums, products and scales of vectors,
// Softmax, SiLU, RMSNorm, RotateHeads, TopK, Exp, Log and Sincos. What numbers a checkpoint's bytes are, how a layer is
// put together of these functions, attention, routing and recurrences are its own.
//
// Call [New], then [Model.Score] for logits, or [Model.Hidden] and [Model.Logits] to advance two models
// side by side and compare their heads tile by tile. [Model.Layers] shows the residual stream after every
// layer, to find the first bad one.
//
// Every block of [arch.Decoder] is computed by the formula in its comment: attention over the keys that a query sees,
// latent attention with all its heads, of experts the chosen ones, recurrences token by token. Products and states are
// float32; norms, functions and convolutions are float64 rounded once.
//
// Work goes layer by layer over all windows. Weights that take no more than a quarter of the memory limit are widened
// once and kept; those of larger models pass through in slabs of 16 MiB, so that the size of the checkpoint does
// not matter. Beside them only hidden states and the activations of a few windows are held.
// The numbers depend neither on the number of threads nor on the memory limit, nor on which windows are
// scored together.
package reference

import (
	"context"
	"fmt"
	"sync"

	goruntime "runtime"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// maxTileRows bounds a tile of logits where memory does not: more rows make no better use of a weight.
const maxTileRows = 256

// Options say what the computation may use.
type Options struct {
	// Threads is how many goroutines compute; below 1, as many as GOMAXPROCS says.
	Threads int
	// Memory is how many bytes the model may hold at a time; below 1, 1 GiB. Up to a quarter goes to kept weights, or
	// else a slab of one; the buffers of the threads come next; what is left goes in halves to hidden states and to
	// activations, later logits.
	Memory int64
}

// Model computes one decoder. It is safe for concurrent use, each call within the limits on its own.
type Model struct {
	decoder *arch.Decoder
	source  tensor.Source
	infos   map[string]tensor.Info
	threads int
	memory  int64

	layers   [][]branch
	parallel bool // some branches are
	// cost is the largest of any block; tokenBytes is what the activations of a token take.
	cost       cost
	tokenBytes int64

	ropes      []*arch.Rope // that blocks use
	ropeFloats int64        // of all tables, for every position
	fastest    float64      // the largest rotary frequency

	matrices    map[arch.Weight]*matrix
	weightBytes int64 // of all matrices in float32
	slabBytes   int64 // of the largest piece of a matrix that is widened at once if weights are not kept
	readBytes   int64 // of the largest piece that a thread widens at a time

	buffers sync.Pool // of *buffer
	slabs   sync.Pool // of *kernel.Packed
	// activations keeps what a call used for the next one: fresh memory has to be cleared.
	activations sync.Pool // of *activations
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

// New prepares d for computation from src, which has the tensors under the names of d, see [arch.Open]. It reads no weights, but compares every slot of d with the facts
// that src states: a missing tensor and a wrong shape are tensor.ErrCorrupt, an element type that cannot be
// widened to float32 is tensor.ErrUnsupported. The description and the source must not change afterwards.
func New(d *arch.Decoder, src tensor.Source, opts Options) (*Model, error) {
	m := &Model{decoder: d, source: src, infos: make(map[string]tensor.Info), matrices: make(map[arch.Weight]*matrix), threads: opts.Threads, memory: opts.Memory}
	if m.threads < 1 {
		m.threads = goruntime.GOMAXPROCS(0)
	}
	if m.memory < 1 {
		m.memory = 1 << 30
	}
	for _, info := range src.Tensors() {
		m.infos[info.Name] = info
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	m.activations.New = func() any { return &activations{rotaries: map[*arch.Rope]*rotary{}} }
	m.slabs.New = func() any { return new(kernel.Packed) }
	m.buffers.New = func() any { return new(buffer) }
	return m, nil
}

// addMatrix notes a matrix that the computation multiplies with.
func (m *Model) addMatrix(w arch.Weight) {
	if m.matrices[w] != nil { // tied
		return
	}
	m.matrices[w] = &matrix{Weight: w}
	m.weightBytes += 4 * int64(w.Rows) * int64(w.Cols)
	m.slabBytes = max(m.slabBytes, 4*int64(min(w.Rows, rowsIn(slabBytes, w.Cols)))*int64(w.Cols))
	m.readBytes = max(m.readBytes, 4*int64(min(w.Rows, rowsIn(readBytes, w.Cols)))*int64(w.Cols))
}

// keeps reports whether widened weights are kept: a quarter of the memory must hold all of them.
func (m *Model) keeps() bool { return m.weightBytes <= m.memory/4 }

// Score hands out the logits of every position of every window, in order of windows and positions. A
// window is a context of its own: its first token has position 0 and sees nothing before it. A tile is
// valid until visit returns; an error of visit ends the run and comes back as it is.
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

// tiles evaluates the head. A stretch of rows may cover the ends of several windows, so that the head is
// read once for many short ones.
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

// Hidden is the input of the head: hidden states after the final norm, [total tokens, Hidden], windows one
// after another. All windows must fit the memory limit at once, see [Model.Fit].
func (m *Model) Hidden(ctx context.Context, windows [][]int32) ([]float32, error) {
	h, err := m.forward(ctx, windows, func(int, []float32) error { return nil })
	if err != nil {
		return nil, err
	}
	return h, m.Norm(h)
}

// Norm applies the final norm to rows of what [Model.Layers] gave last, in place.
func (m *Model) Norm(hidden []float32) error { return m.norm(hidden, hidden, &m.decoder.FinalNorm) }

// Layers hands out the residual stream after layers 0, 1, and so on: [total tokens, Hidden], windows one
// after another, valid until visit returns and not to be changed. All windows must fit the memory limit at
// once, see [Model.Fit]. An error of visit ends the run and comes back as it is.
func (m *Model) Layers(ctx context.Context, windows [][]int32, visit func(layer int, hidden []float32) error) error {
	_, err := m.forward(ctx, windows, visit)
	return err
}

// Logits applies the head, and what scales and bounds its results, to rows of what [Model.Hidden] gave: dst is [rows, Vocab], hidden [rows, Hidden].
func (m *Model) Logits(ctx context.Context, dst, hidden []float32) error {
	rows := len(hidden) / m.decoder.Hidden
	if len(hidden) != rows*m.decoder.Hidden || len(dst) != rows*m.decoder.Vocab {
		return fmt.Errorf("%d logits for %d hidden values, with %d and %d in a row", len(dst), len(hidden), m.decoder.Vocab, m.decoder.Hidden)
	}
	if err := m.linear(ctx, dst, hidden, rows, &m.decoder.Head); err != nil {
		return err
	}
	m.scaleAll(dst, m.decoder.LogitScale)
	if c := m.decoder.LogitCap; c != 0 {
		m.pointwise(dst, func(x float64) float64 { return c * tanh(x/c) })
	}
	return nil
}

// Fit is how many of the leading windows [Model.Hidden] and [Model.Layers] can take at once. 0 of some
// windows says that the first one alone is too long for the memory limit.
func (m *Model) Fit(windows [][]int32) int {
	var tokens int64
	longest := 0
	for i, w := range windows {
		tokens += int64(len(w))
		longest = max(longest, len(w))
		room := m.room(longest)
		if tokens*4*int64(m.decoder.Hidden) > room || int64(longest)*m.tokenBytes > room {
			return i
		}
	}
	return len(windows)
}

// LeastMemory is the smallest limit in bytes with which a window of length tokens fits, see [Model.Fit].
func (m *Model) LeastMemory(length int) int64 {
	rest := m.overhead(length) + 2*int64(length)*max(4*int64(m.decoder.Hidden), m.tokenBytes) + 1
	// A limit of four times the weights keeps them, which leaves less if the rest is large.
	if least := rest + m.slabBytes; least < 4*m.weightBytes {
		return least
	}
	return rest + max(m.slabBytes, m.weightBytes)
}

// overhead is what the buffers of the threads and the rotary tables take with windows of up to longest tokens.
func (m *Model) overhead(longest int) int64 {
	// Rows of a matrix take up to 8 bytes an element as stored.
	thread := 3*m.readBytes + 4*int64(longest)*int64(m.cost.position) + 4*int64(m.cost.fixed)
	return int64(m.threads)*thread + 4*int64(longest)*m.ropeFloats
}

// room is half of what the limit leaves beside weights, the buffers of the threads and the rotary tables, for windows
// of up to longest tokens: one half for hidden states, the other for activations, later for logits.
func (m *Model) room(longest int) int64 {
	free := m.memory - m.overhead(longest)
	if m.keeps() {
		free -= m.weightBytes
	} else {
		free -= m.slabBytes
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
