package forward

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/pipeline/safetensors"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// memory is a tensor.Source that tests may damage.
type memory struct {
	infos []tensor.Info
	data  map[string][]byte
}

func (m *memory) Tensors() []tensor.Info { return m.infos }

func (m *memory) Open(name string) (*io.SectionReader, error) {
	b, ok := m.data[name]
	if !ok {
		return nil, fmt.Errorf("no tensor %q", name)
	}
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), nil
}

func (m *memory) info(t testing.TB, name string) *tensor.Info {
	t.Helper()
	i := slices.IndexFunc(m.infos, func(i tensor.Info) bool { return i.Name == name })
	if i < 0 {
		t.Fatalf("no tensor %q", name)
	}
	return &m.infos[i]
}

// add stores a tensor of float32.
func (m *memory) add(name string, x []float32, shape ...int64) {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	m.infos = append(m.infos, tensor.Info{Name: name, DType: tensor.F32, Shape: shape, Size: int64(len(b))})
	m.data[name] = b
}

// readFile reads a safetensors file.
func readFile(t testing.TB, path string) *memory {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := safetensors.ReadHeader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{data: make(map[string][]byte)}
	for _, e := range h.Entries {
		m.infos = append(m.infos, e.Info)
		m.data[e.Name] = b[e.Offset : e.Offset+e.Size]
	}
	return m
}

// tokens reads a tensor of token ids.
func (m *memory) tokens(t testing.TB, name string) []int32 {
	b, width := m.data[name], int(m.info(t, name).DType.Size())
	ids := make([]int32, len(b)/width)
	for i := range ids { // all ids are small, whatever the integer type
		ids[i] = int32(binary.LittleEndian.Uint16(b[i*width:]))
	}
	return ids
}

// floats reads a tensor of float32.
func (m *memory) floats(name string) []float32 {
	b := m.data[name]
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

var (
	familiesDir = filepath.Join("..", "arch", "testdata")
	tinyDir     = filepath.Join("..", "..", "testdata", "tiny-qwen3")
)

// openModel opens the checkpoint in a directory.
func openModel(t testing.TB, dir string, threads int) *Model {
	t.Helper()
	d, src := openSource(t, dir)
	return newModel(t, d, src, threads)
}

// openSource opens the checkpoint in a directory, with its views.
func openSource(t testing.TB, dir string) (*arch.Decoder, tensor.Source) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	src, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	m, err := arch.Describe(config, src.Tensors(), arch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := m.Text
	opened, err := arch.Open(d, src)
	if err != nil {
		t.Fatal(err)
	}
	return d, opened
}

// features are what random models differ by.
type features struct {
	norms, biases, untied bool
	heads, kvHeads        int
}

// Sizes of random models.
const (
	randomHidden, randomInner, randomVocab, randomDim = 24, 40, 50, 8
)

// maker makes up weights.
type maker struct {
	random *rand.Rand
	src    *memory
	biases bool
}

func (m *maker) matrix(name string, rows, cols int) arch.Weight {
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(m.random.NormFloat64() / math.Sqrt(float64(cols)))
	}
	m.src.add(name, x, int64(rows), int64(cols))
	return arch.Weight{Tensor: name, Rows: rows, Cols: cols}
}

func (m *maker) vector(name string, n int, mean float64) arch.Weight {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mean + 0.3*m.random.NormFloat64())
	}
	m.src.add(name, x, int64(n))
	return arch.Weight{Tensor: name, Rows: n}
}

func (m *maker) norm(name string, n int) *arch.Norm {
	return &arch.Norm{Gamma: m.vector(name, n, 1), Eps: 1e-5}
}

func (m *maker) linear(name string, rows, cols int) arch.Linear {
	l := arch.Linear{Weight: m.matrix(name, rows, cols)}
	if m.biases {
		l.Bias = m.vector(name+".bias", rows, 0)
	}
	return l
}

// randomModel makes up a model of two layers of the plainest form.
func randomModel(f features) (*arch.Decoder, *memory) {
	d, m := makeModel(f)
	return d, m.src
}

func makeModel(f features) (*arch.Decoder, *maker) {
	const hidden, inner, vocab, dim = randomHidden, randomInner, randomVocab, randomDim
	m := &maker{rand.New(rand.NewPCG(7, 9)), &memory{data: make(map[string][]byte)}, f.biases}
	d := &arch.Decoder{
		Hidden: hidden, Vocab: vocab, MaxPositions: 4096, Embedding: m.matrix("embedding", vocab, hidden), FinalNorm: *m.norm("norm", hidden),
		Ropes: []*arch.Rope{{Type: "default", Dim: dim, InvFreq: []float64{1, 0.3, 0.1, 0.03}, Scale: 1}},
	}
	for i := range 2 {
		p := fmt.Sprintf("%d.", i)
		before, behind := m.norm(p+"attention norm", hidden), m.norm(p+"mlp norm", hidden)
		a := &arch.Attention{
			Rope:  d.Ropes[0],
			Heads: f.heads, KVHeads: f.kvHeads, HeadDim: dim,
			Q: m.linear(p+"q", f.heads*dim, hidden), K: m.linear(p+"k", f.kvHeads*dim, hidden), V: m.linear(p+"v", f.kvHeads*dim, hidden),
			O: m.linear(p+"o", hidden, f.heads*dim),
		}
		if f.norms {
			a.QNorm, a.KNorm = m.norm(p+"q norm", dim), m.norm(p+"k norm", dim)
		}
		mlp := &arch.MLP{
			Intermediate: inner, Activation: arch.SiLU,
			Gate: m.linear(p+"gate", inner, hidden), Up: m.linear(p+"up", inner, hidden), Down: m.linear(p+"down", hidden, inner),
		}
		d.Layers = append(d.Layers, arch.Layer{{Norm: before, Block: a}, {Norm: behind, Block: mlp}})
	}
	d.Head, d.Tied = arch.Linear{Weight: d.Embedding}, true
	if f.untied {
		d.Head, d.Tied = m.linear("head", vocab, hidden), false
	}
	return d, m
}

// randomTokens are windows of random tokens.
func randomTokens(vocab, windows, length int) [][]int32 {
	r := rand.New(rand.NewPCG(1, 2))
	w := make([][]int32, windows)
	for i := range w {
		for range length {
			w[i] = append(w[i], int32(r.IntN(vocab)))
		}
	}
	return w
}

func newModel(t testing.TB, d *arch.Decoder, src tensor.Source, threads int) *Model {
	t.Helper()
	m, err := New(d, src, threads)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// someWindows are of unlike lengths, one of them empty.
func someWindows() [][]int32 {
	w := randomTokens(320, 1, 96)[0]
	return [][]int32{w[:24], w, {}, w[:1], w[3:70], w[5:24]}
}

// lengths are those of windows.
func lengths(windows [][]int32) (w Windows) {
	for _, x := range windows {
		w.Lengths = append(w.Lengths, len(x))
	}
	return w
}

// scoreAll runs everything with weights that are read when they are needed, and gives the logits of every window.
func scoreAll(t testing.TB, m *Model, windows [][]int32) (all [][]float32) {
	t.Helper()
	e, err := m.Embedding()
	check(t, err)
	h, err := e.States(t.Context(), windows)
	check(t, err)
	for i := range m.decoder.Layers {
		check(t, m.Layer(i).Forward(t.Context(), h, lengths(windows)))
	}
	head, err := m.Head()
	check(t, err)
	h = head.Input(h, h)
	for _, w := range windows {
		logits := make([]float32, len(w)*m.decoder.Vocab)
		check(t, head.Logits(t.Context(), logits, h[:len(w)*m.decoder.Hidden]))
		all, h = append(all, logits), h[len(w)*m.decoder.Hidden:]
	}
	return all
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// parts are all that a model computes with, loaded.
type parts struct {
	*Model
	embedding *Embedding
	layers    []*Layer
	head      *Head
}

func load(t testing.TB, m *Model) *parts {
	t.Helper()
	p := &parts{Model: m}
	var err error
	p.embedding, err = m.Embedding()
	check(t, err)
	for i := range m.decoder.Layers {
		l, err := m.LoadLayer(i)
		check(t, err)
		p.layers = append(p.layers, l)
	}
	p.head, err = m.LoadHead()
	check(t, err)
	return p
}

func (p *parts) embed(t testing.TB, windows [][]int32) []float32 {
	t.Helper()
	h, err := p.embedding.States(t.Context(), windows)
	check(t, err)
	return h
}

// logits runs everything.
func (p *parts) logits(t testing.TB, windows [][]int32) []float32 {
	t.Helper()
	h := p.embed(t, windows)
	for _, l := range p.layers {
		check(t, l.Forward(t.Context(), h, lengths(windows)))
	}
	h = p.head.Input(h, h)
	logits := make([]float32, len(h)/p.decoder.Hidden*p.decoder.Vocab)
	check(t, p.head.Logits(t.Context(), logits, h))
	return logits
}

// attentionOf and mlpOf are the blocks of a layer of attention and an MLP.
func attentionOf(d *arch.Decoder, i int) *arch.Attention {
	return d.Layers[i][0].Block.(*arch.Attention)
}
func mlpOf(d *arch.Decoder, i int) *arch.MLP { return d.Layers[i][1].Block.(*arch.MLP) }
