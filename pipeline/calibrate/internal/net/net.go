// Package net runs a decoder in float32 on batches of windows, forwards and backwards. Calibration, sensitivities and
// the tuning of scales stand on it.
//
// Call [New]; then [Model.Embed], the steps of every [Model.Layer], and [Model.Head]. A layer is made of steps, because
// a quantizer replaces weights between them: what a linear layer is to be calibrated with exists before it runs.
//
//	h := Embed(windows)
//	for each layer:
//		AttentionInput(x, h)     x is the input of q, k and v
//		Attend(xo, x, length)    xo is the input of o
//		AddAttention(h, xo)
//		MLPInput(x, h)           x is the input of gate and up
//		Product(xd, x)           xd is the input of down
//		AddMLP(h, xd)
//	head.Input(x, h)             x is the input of the head
//	head.Logits(logits, x)       some rows at a time
//
// [Layer.Backward] and [Head.Backward] take the gradient of a loss back from the output of a layer to its input. They
// keep nothing of the forward pass but the layer's input, and compute the rest once more. [Model.Sample] writes text.
//
// All windows of a batch have the same length. Activations are float32 [windows*length, width], row-major, a row for
// each token, windows one after another. All results, those of gradients included, have the same bits on every machine,
// for every number of threads, and for a window whichever others it is computed with; sums over tokens, that is
// gradients of weights, are taken in the order of the tokens.
//
// A slice of the wrong length is a broken invariant of the caller and panics.
package net

import (
	"fmt"

	goruntime "runtime"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// pieceTokens is how many tokens a step computes at a time, in whole windows: enough to read a weight once for many
// products, and few enough to bound what lies between input and output of a step.
const pieceTokens = 2048

// longestWindow bounds the rotary table and its angles, see [maxFrequency].
const longestWindow = 1 << 17

// Model computes one decoder. It, its layers and its head share buffers: they belong to one goroutine at a time, which
// every call supports by further ones.
type Model struct {
	decoder *arch.Decoder
	source  tensor.Source
	infos   map[string]tensor.Info
	threads int

	embedding *Linear
	head      *Head
	rotary    rotary
	buffers   buffers
}

// New prepares d for computation from src on up to threads goroutines; below 1, as many as GOMAXPROCS says. It reads no
// weights, but compares every slot of d with the facts that src states: a missing tensor and a wrong shape are
// tensor.ErrCorrupt, an element type that cannot be widened to float32 is tensor.ErrUnsupported. The description must
// not change afterwards.
func New(d *arch.Decoder, src tensor.Source, threads int) (*Model, error) {
	if threads < 1 {
		threads = goruntime.GOMAXPROCS(0)
	}
	m := &Model{decoder: d, source: src, infos: make(map[string]tensor.Info), threads: threads}
	for _, info := range src.Tensors() {
		m.infos[info.Name] = info
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// Embedding is the table that tokens are looked up in, as rows [Vocab, Hidden] without a bias, read when it is first
// asked for. It is the head's own Linear where the two are tied.
func (m *Model) Embedding() (*Linear, error) {
	if m.embedding == nil {
		l, err := m.linear(&arch.Linear{Weight: m.decoder.Embedding})
		if err != nil {
			return nil, err
		}
		m.embedding = l
	}
	return m.embedding, nil
}

// Embed looks up the tokens of windows, which all have the same length, in what [Model.Embedding] holds: the result is
// [windows*length, Hidden]. As long as nobody has asked for the table, only the rows that occur are read.
//
// The gradient at its output is that of the table: row t of the table gets the sum over the places of token t.
func (m *Model) Embed(windows [][]int32) ([]float32, error) {
	d := m.decoder
	if len(windows) == 0 || len(windows[0]) == 0 {
		return nil, nil
	}
	length := len(windows[0])
	if err := m.checkLength(length); err != nil {
		return nil, err
	}
	for i, w := range windows {
		if len(w) != length {
			return nil, fmt.Errorf("window %d has %d tokens, the first one has %d", i, len(w), length)
		}
		if err := m.checkTokens(w); err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
	}
	h := make([]float32, len(windows)*length*d.Hidden)
	for i, w := range windows {
		if err := m.lookUp(h[i*length*d.Hidden:], w); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// lookUp writes the rows of tokens to h.
func (m *Model) lookUp(h []float32, tokens []int32) error {
	width := m.decoder.Hidden
	if m.embedding != nil {
		for i, token := range tokens {
			copy(h[i*width:(i+1)*width], m.embedding.W[int(token)*width:])
		}
		return nil
	}
	t, err := m.open(m.decoder.Embedding)
	if err != nil {
		return err
	}
	for i, token := range tokens {
		if err := t.read(h[i*width:(i+1)*width], int(token)); err != nil {
			return err
		}
	}
	return nil
}

// pieces calls f with ranges of rows that cover n windows of length tokens, whole windows each.
func pieces(n, length int, f func(lo, hi int)) {
	step := max(1, pieceTokens/length)
	for w := 0; w < n; w += step {
		f(w*length, min(w+step, n)*length)
	}
}

// windowsIn is the number of windows of length tokens in x, of width values a token.
func windowsIn(call string, x []float32, width, length int) int {
	if length < 1 || len(x)%(length*width) != 0 {
		panic(fmt.Sprintf("internal error: net.%s: %d values for windows of %d tokens of %d", call, len(x), length, width))
	}
	return len(x) / (length * width)
}

// rowsIn is the number of rows of width values in x, of which y must have the same with its own width.
func rowsIn(call string, x []float32, width int, y []float32, yWidth int) int {
	n := len(x) / width
	if len(x) != n*width || len(y) != n*yWidth {
		panic(fmt.Sprintf("internal error: net.%s: %d and %d values for rows of %d and %d", call, len(x), len(y), width, yWidth))
	}
	return n
}

// buffers are what steps need between their input and their output, kept from call to call: fresh memory would have to
// be cleared.
type buffers struct {
	norm, out, gradient, part []float32 // [tokens, Hidden]
	q, k, v, attended         []float32
	plainQ, plainK            []float32 // before their norms
	gate, up, product         []float32 // [tokens, Intermediate]
	logits                    []float32
	sums                      []float64
}

// grow is a slice of n elements whose content is arbitrary.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}
