// Package net runs a decoder in float32 on batches of windows, forwards and backwards. Calibration, sensitivities and
// the tuning of scales stand on it.
//
// Call [New]; then [Model.Embed], the steps of every [Model.Layer], and [Model.Head]. A layer is made of steps, because
// a quantizer replaces weights between them: what a linear layer is to be calibrated with exists before it runs.
//
//	h := Embed(windows, nil)
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
// [Layer.Backward] and [Head.Backward] take the gradient of a loss back from the output of a layer to its input, and
// [Model.EmbedBackward] to the rows of the table. They keep nothing of the forward pass but the layer's input, and compute
// the rest once more. [Model.Sample] writes text.
//
// What is known is what [arch.Decoder.CheckPairs] accepts.
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
	"sync"

	goruntime "runtime"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
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

	// room is how many bytes of matrices products may keep, for a model that only runs forwards: those that do not fit are
	// streamed. nil keeps all of them, and their rows as the gradient needs them.
	room *int64
	// broken is the first error of a streamed matrix.
	broken error
	lock   sync.Mutex // of broken

	embedding *Linear
	behind    *Norm // EmbeddingNorm, once read
	head      *Head
	rotaries  map[*arch.Rope]*tables
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
	m := &Model{decoder: d, source: src, infos: make(map[string]tensor.Info), threads: threads, rotaries: make(map[*arch.Rope]*tables)}
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

// EmbeddingNorm is the norm of rows that were looked up, read when it is first asked for; nil if there is none.
func (m *Model) EmbeddingNorm() (*Norm, error) {
	if m.behind == nil {
		n, err := m.norm(m.decoder.EmbeddingNorm)
		if err != nil {
			return nil, fmt.Errorf("embedding norm: %w", err)
		}
		m.behind = n
	}
	return m.behind, nil
}

// Embed looks up the tokens of windows, which all have the same length, and normalises and scales their rows as the
// description says: the result is [windows*length, Hidden]. Rows are those of table [Vocab, Hidden]; of what
// [Model.Embedding] holds, if that is nil. As long as nobody has asked for that, only the rows that occur are read.
func (m *Model) Embed(windows [][]int32, table []float32) ([]float32, error) {
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
		if err := m.embed(h[i*length*d.Hidden:(i+1)*length*d.Hidden], w, table, func(i int) int { return i }); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// EmbedBackward takes dh [windows*length, Hidden], the gradient of what [Model.Embed] gave, to that of the rows it looked
// up, in place: row t of the table gets the sum over the places of token t.
func (m *Model) EmbedBackward(dh []float32, windows [][]int32, table []float32, v Visitor) error {
	if s := m.decoder.EmbeddingScale; s != 0 {
		scaleAll(m.threads, dh, float32(s))
	}
	n, err := m.EmbeddingNorm()
	if n == nil {
		return err
	}
	width := m.decoder.Hidden
	for lo := 0; len(windows) > 0; windows = windows[1:] {
		hi := lo + len(windows[0])*width
		x := grow(&m.buffers.norm, hi-lo)
		if err := m.lookUp(x, windows[0], table); err != nil {
			return err
		}
		n.back(x, dh[lo:hi], 1, v)
		lo = hi
	}
	return nil
}

// embed writes the states of tokens before the first layer to h; position says where the i-th of them stands.
func (m *Model) embed(h []float32, tokens []int32, table []float32, position func(i int) int) error {
	if err := m.lookUp(h, tokens, table); err != nil {
		return err
	}
	n, err := m.EmbeddingNorm()
	if err != nil {
		return err
	}
	if n != nil {
		n.apply(h, h)
	}
	if s := m.decoder.EmbeddingScale; s != 0 {
		scaleAll(m.threads, h, float32(s))
	}
	if m.decoder.Positions.Tensor == "" {
		return nil
	}
	t, err := m.open(m.decoder.Positions)
	if err != nil {
		return err
	}
	row := make([]float32, m.decoder.Hidden)
	for i := range tokens {
		if err := t.read(row, m.decoder.FirstPosition+position(i)); err != nil {
			return err
		}
		at := h[i*len(row):][:len(row)]
		kernel.Add(at, at, row)
	}
	return nil
}

// lookUp writes the rows of tokens to h.
func (m *Model) lookUp(h []float32, tokens []int32, table []float32) error {
	width := m.decoder.Hidden
	if table == nil && m.embedding != nil {
		table = m.embedding.W
	}
	if table != nil {
		for i, token := range tokens {
			copy(h[i*width:(i+1)*width], table[int(token)*width:])
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
	logits, bounded           []float32

	// What only some models need: outputs of blocks before their norms and their gradients, inputs of o and down before
	// theirs, of o before its gate and that gate.
	attention, mlp, branch   []float32
	plainO, plainDown, mixed []float32
	gates                    []float32
	loud                     [3][]float32 // queries, keys and values before they are clipped
	sums                     []float64
}

// grow is a slice of n elements whose content is arbitrary.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}
