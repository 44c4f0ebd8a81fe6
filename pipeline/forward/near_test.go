package forward

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// nearLayer is a decoder of one layer with attention to near states.
func nearLayer() (*arch.Decoder, *memory) {
	const hidden, vocab = 48, 320
	m := &inventor{&memory{data: make(map[string][]byte)}, rand.New(rand.NewPCG(1, 2)), hidden}
	q := m.attention(4, 4, 12, nil)
	a := &arch.NearAttention{
		Heads: 4, HeadDim: 12, Q: q.Q, K: q.K, V: q.V, O: q.O, Gains: m.weight(12, 0, 1, .2), KeyScale: 1.5, Cap: 20, Past: 3, Future: 1,
		Keys: m.linear(hidden, hidden),
	}
	a.Keys.Bias = arch.Weight{}
	return &arch.Decoder{
		Hidden: hidden, Vocab: vocab, MaxPositions: 512, Embedding: m.weight(vocab, hidden, 0, 1), FinalNorm: *m.norm(hidden), Head: m.linear(vocab, hidden),
		Layers: []arch.Layer{{{Norm: m.norm(hidden), Block: a}}},
	}, m.memory
}

// What is wrong with attention to near states is found before anything runs, and it says that it has no gradients.
func TestNearErrors(t *testing.T) {
	for name, change := range map[string]func(a *arch.NearAttention){
		"negative past":    func(a *arch.NearAttention) { a.Past = -1 },
		"no cap":           func(a *arch.NearAttention) { a.Cap = 0 },
		"gains":            func(a *arch.NearAttention) { a.Gains.Rows++ },
		"keys":             func(a *arch.NearAttention) { a.Keys.Weight.Cols-- },
		"keys with a bias": func(a *arch.NearAttention) { a.Keys.Bias = a.Q.Bias },
		"heads":            func(a *arch.NearAttention) { a.Heads = 3 },
	} {
		d, src := nearLayer()
		change(d.Layers[0][0].Block.(*arch.NearAttention))
		if _, err := New(d, src, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	d, src := nearLayer()
	p, windows := load(t, newModel(t, d, src, 1)), someWindows()
	h := p.embed(t, windows)
	if err := p.layers[0].Backward(t.Context(), h, h, lengths(windows), Visitor{}); !errors.Is(err, tensor.ErrUnsupported) {
		t.Errorf("gradients: %v", err)
	}
}
