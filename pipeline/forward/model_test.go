package forward

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// backward runs everything there and back, for cross entropy with the tokens themselves, and returns the residual stream
// behind the last layer, the gradient at the embedding, and the gradients of all weights by name and piece.
func backward(t testing.TB, p *parts, windows [][]int32) (h, dh []float32, weights map[string][]float64) {
	t.Helper()
	of := lengths(windows)
	labels := slices.Concat(windows...)
	h = p.embed(t, windows)
	var inputs [][]float32
	for _, l := range p.layers {
		inputs = append(inputs, slices.Clone(h))
		check(t, l.Forward(t.Context(), h, of))
	}
	weights = make(map[string][]float64)
	add := func(name string, n int, f func(i int) float64) {
		sum := weights[name]
		if sum == nil {
			sum = make([]float64, n)
			weights[name] = sum
		}
		for i := range sum {
			sum[i] += f(i)
		}
	}
	v := Visitor{
		Linear: func(l *Linear, x, dy []float32) {
			dw := make([]float32, len(l.W))
			l.Gradient(dw, x, dy)
			add(l.Weight.Tensor, len(dw), func(i int) float64 { return float64(dw[i]) })
		},
		Norm: func(n *Norm, dGamma []float64) {
			add(n.Weight.Tensor, len(dGamma), func(i int) float64 { return dGamma[i] })
		},
	}
	stream := p.Stream(h)
	dh = make([]float32, len(stream))
	check(t, p.head.Backward(t.Context(), dh, stream, func(token int, logits []float32) error {
		p.CrossEntropyGradient(logits, given(labels[token:token+len(logits)/p.decoder.Vocab]))
		return nil
	}, v))
	dh = p.WithSide(dh)
	for i := len(inputs) - 1; i >= 0; i-- {
		check(t, p.layers[i].Backward(t.Context(), dh, inputs[i], of, v))
	}
	return h, dh, weights
}

// The same bits for all numbers of threads, and for a window alone; several pieces at a time.
func TestIndependence(t *testing.T) {
	d, src := randomModel(features{heads: 4, kvHeads: 2, norms: true, biases: true})
	const length = 150
	windows := randomTokens(d.Vocab, 2*GroupTokens/length, length)
	h, dh, weights := backward(t, load(t, newModel(t, d, src, 1)), windows)
	for _, threads := range []int{2, 7} {
		t.Run(fmt.Sprint("threads=", threads), func(t *testing.T) {
			h2, dh2, weights2 := backward(t, load(t, newModel(t, d, src, threads)), windows)
			if !slices.Equal(h2, h) || !slices.Equal(dh2, dh) {
				t.Error("hidden states or their gradients differ")
			}
			for name, w := range weights {
				if !slices.Equal(weights2[name], w) {
					t.Errorf("gradients of %s differ", name)
				}
			}
		})
	}
	t.Run("alone", func(t *testing.T) {
		p, n := load(t, newModel(t, d, src, 2)), length*d.Hidden
		for _, i := range []int{0, 1, len(windows) - 1} {
			h1, dh1, _ := backward(t, p, windows[i:i+1])
			if !slices.Equal(h1, h[i*n:(i+1)*n]) || !slices.Equal(dh1, dh[i*n:(i+1)*n]) {
				t.Errorf("window %d differs", i)
			}
		}
	})
	t.Run("prefix", func(t *testing.T) { // nothing looks ahead
		p, n := load(t, newModel(t, d, src, 2)), 65
		short, _, _ := backward(t, p, [][]int32{windows[0][:n]})
		if !slices.Equal(short, h[:n*d.Hidden]) {
			t.Error("earlier states depend on later tokens")
		}
	})
}

// Forward is nothing but its steps, whatever stands between them.
func TestSteps(t *testing.T) {
	d, src := randomModel(features{heads: 4, kvHeads: 1, biases: true})
	p := load(t, newModel(t, d, src, 2))
	windows := randomTokens(d.Vocab, 25, 100)
	of, want := lengths(windows), p.embed(t, windows)
	h := slices.Clone(want)
	for _, l := range p.layers {
		check(t, l.Forward(t.Context(), want, of))
		for _, b := range l.Branches() {
			in := b.Inputs()
			x := make([]float32, len(h)/d.Hidden*b.Width())
			check(t, b.Read(t.Context(), x, h, of, in[len(in)-1][0]))
			check(t, b.Add(t.Context(), h, x, of))
		}
		if !slices.Equal(h, want) {
			t.Fatalf("layer %d differs", l.Index)
		}
	}
}

// Inputs are every linear layer once, by the vectors that they read.
func TestInputs(t *testing.T) {
	eachForm(t, func(t *testing.T, d *arch.Decoder, src *memory) {
		p := load(t, newModel(t, d, src, 1))
		windows := randomTokens(d.Vocab, 2, 5)
		h := p.embed(t, windows)
		var got, want []string
		d.Linears(func(_ string, l *arch.Linear) { want = append(want, l.Weight.Tensor) })
		for _, l := range p.layers {
			for _, b := range l.Branches() {
				for _, in := range b.Inputs() {
					var first []float32
					for _, x := range in {
						got = append(got, x.Weight.Tensor)
						v := make([]float32, 10*x.Cols)
						check(t, b.Read(t.Context(), v, h, lengths(windows), x))
						if first == nil {
							first = v
						}
						if !slices.Equal(v, first) {
							t.Errorf("%s and %s read different vectors", in[0].Weight.Tensor, x.Weight.Tensor)
						}
					}
				}
			}
		}
		if got = append(got, d.Head.Weight.Tensor); !slices.Equal(got, want) {
			t.Errorf("inputs of %q, want %q", got, want)
		}
	})
}

func TestSet(t *testing.T) {
	d, src := randomModel(features{heads: 2, kvHeads: 2})
	p := load(t, newModel(t, d, src, 2))
	windows := randomTokens(d.Vocab, 1, 10)
	before := p.logits(t, windows)
	inputs := p.layers[1].Branches()[1].Inputs()
	down := inputs[len(inputs)-1][0]
	saved := down.W
	down.Set(make([]float32, len(saved)))
	if slices.Equal(p.logits(t, windows), before) {
		t.Error("other weights, same logits")
	}
	down.Set(saved)
	if !slices.Equal(p.logits(t, windows), before) {
		t.Error("same weights, other logits")
	}
}

// The rows of the embedding are the same from the checkpoint and from a table, and so are wider types.
func TestWeights(t *testing.T) {
	m := openModel(t, tinyDir, 2)
	windows := randomTokens(m.decoder.Vocab, 2, 30)
	e, err := m.Embedding()
	check(t, err)
	before, err := e.States(t.Context(), windows)
	check(t, err)
	l, err := m.LoadTable()
	check(t, err)
	e.Table = l.W
	after, err := e.States(t.Context(), windows)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("embeddings differ: %v", err)
	}
	d, src := randomModel(features{heads: 2, kvHeads: 2})
	narrow := load(t, newModel(t, d, src, 1)).logits(t, randomTokens(d.Vocab, 1, 5))
	for i, info := range src.infos {
		var b bytes.Buffer
		for _, x := range src.floats(info.Name) {
			binary.Write(&b, binary.LittleEndian, float64(x))
		}
		src.data[info.Name], src.infos[i].DType, src.infos[i].Size = b.Bytes(), tensor.F64, int64(b.Len())
	}
	if !slices.Equal(load(t, newModel(t, d, src, 1)).logits(t, randomTokens(d.Vocab, 1, 5)), narrow) {
		t.Error("float64 gives other logits")
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(d *arch.Decoder, src *memory)
		want   error
	}{
		{"no layers", func(d *arch.Decoder, _ *memory) { d.Layers = nil }, tensor.ErrCorrupt},
		{"missing tensor", func(d *arch.Decoder, _ *memory) { mlpOf(d, 1).Down.Weight.Tensor = "no" }, tensor.ErrCorrupt},
		{"shape of a tensor", func(_ *arch.Decoder, src *memory) { src.infos[0].Shape = tensor.Shape{24, 50} }, tensor.ErrCorrupt},
		{"size of a tensor", func(_ *arch.Decoder, src *memory) { src.infos[0].Size-- }, tensor.ErrCorrupt},
		{"shape of a slot", func(d *arch.Decoder, _ *memory) { attentionOf(d, 0).K.Weight.Cols++ }, tensor.ErrCorrupt},
		{"bias", func(d *arch.Decoder, _ *memory) { attentionOf(d, 0).O.Bias.Rows++ }, tensor.ErrCorrupt},
		{"norm of heads", func(d *arch.Decoder, _ *memory) { attentionOf(d, 0).KNorm.Gamma.Rows-- }, tensor.ErrCorrupt},
		{"heads", func(d *arch.Decoder, _ *memory) { attentionOf(d, 0).KVHeads = 3 }, tensor.ErrCorrupt},
		{"many heads", func(d *arch.Decoder, _ *memory) { attentionOf(d, 0).Heads = math.MaxInt - 3 }, tensor.ErrCorrupt},
		{"rotation", func(d *arch.Decoder, _ *memory) { d.Ropes[0].Dim = 6 }, tensor.ErrCorrupt},
		{"frequency", func(d *arch.Decoder, _ *memory) { d.Ropes[0].InvFreq[3] = math.NaN() }, tensor.ErrCorrupt},
		{"wide rotation", func(d *arch.Decoder, _ *memory) { d.Ropes[0].Dim, d.Ropes[0].InvFreq = 10, make([]float64, 5) }, tensor.ErrCorrupt},
		{"element type", func(_ *arch.Decoder, src *memory) { src.infos[0].DType = tensor.F8E4M3 }, tensor.ErrUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, src := randomModel(features{heads: 4, kvHeads: 2, norms: true, biases: true})
			c.damage(d, src)
			if _, err := New(d, src, 1); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// Bytes that only reading can find wrong.
func TestCorruptWeights(t *testing.T) {
	for _, name := range []string{"1.gate", "1.gate.bias", "1.k norm", "embedding", "head", "norm"} {
		t.Run(name, func(t *testing.T) {
			d, src := randomModel(features{heads: 4, kvHeads: 2, norms: true, biases: true, untied: true})
			m := newModel(t, d, src, 1)
			read := func() error {
				_, a := m.LoadLayer(1)
				_, b := m.LoadHead()
				e, c := m.Embedding()
				check(t, c)
				_, c = e.States(t.Context(), [][]int32{{0, 49}})
				return errors.Join(a, b, c)
			}
			if err := read(); err != nil {
				t.Fatal(err)
			}
			m = newModel(t, d, src, 1)
			b := src.data[name]
			binary.LittleEndian.PutUint32(b[len(b)-4:], math.Float32bits(float32(math.NaN())))
			if err := read(); !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("NaN: %v", err)
			}
			m = newModel(t, d, src, 1)
			src.data[name] = b[:len(b)-4]
			if err := read(); !errors.Is(err, tensor.ErrCorrupt) {
				t.Errorf("cut: %v", err)
			}
		})
	}
}

func TestRefusedWindows(t *testing.T) {
	d, src := randomModel(features{heads: 2, kvHeads: 2})
	d.MaxPositions = 4
	m := newModel(t, d, src, 1)
	for _, c := range []struct {
		name    string
		windows [][]int32
		want    error // nil for any
	}{
		{"negative token", [][]int32{{1, -1}}, nil},
		{"token beyond the vocabulary", [][]int32{{1, 50}}, nil},
		{"too long", [][]int32{{1, 2, 3, 4, 5}}, tensor.ErrUnsupported},
	} {
		e, err := m.Embedding()
		check(t, err)
		if _, err := e.States(t.Context(), c.windows); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
