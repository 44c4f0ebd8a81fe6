package forward

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// conformerLayer is a decoder of one layer with what Conformers have.
func conformerLayer() (*arch.Decoder, *memory) {
	const hidden, vocab = 48, 320
	m := &inventor{&memory{data: make(map[string][]byte)}, rand.New(rand.NewPCG(1, 2)), hidden}
	a := m.attention(4, 4, 12, nil)
	a.Bidirectional, a.K.Bias = true, arch.Weight{} // scores alike for all keys would have no gradient
	a.Relative = &arch.Relative{Content: m.weight(hidden, 0, 0, .5), Place: m.weight(hidden, 0, 0, .5), Keys: m.linear(hidden, hidden)}
	a.Relative.Keys.Bias = arch.Weight{}
	half := m.mlp(arch.SiLU, 60)
	half.Gate = arch.Linear{}
	return &arch.Decoder{
		Hidden: hidden, Vocab: vocab, MaxPositions: 512, Embedding: m.weight(vocab, hidden, 0, 1), FinalNorm: *m.norm(hidden), Head: m.linear(vocab, hidden),
		Layers: []arch.Layer{{
			{Norm: m.norm(hidden), Block: half, Scale: .5},
			{Norm: m.norm(hidden), Block: a},
			{Norm: m.norm(hidden), Block: &arch.GatedConv{
				In: m.linear(2*hidden, hidden), Kernel: m.weight(hidden, 9, 0, .4), Bias: m.weight(hidden, 0, 0, .1), Out: m.linear(hidden, hidden),
			}, SumNorm: m.norm(hidden)},
		}},
	}, m.memory
}

// The gradients of a layer of a Conformer are right, and the same for every number of threads; also with a norm and without later rows.
func TestConformerGradients(t *testing.T) {
	t.Run("around", func(t *testing.T) { testConformerGradients(t, false) })
	t.Run("before", func(t *testing.T) { testConformerGradients(t, true) })
}

func testConformerGradients(t *testing.T, causal bool) {
	d, src := conformerLayer()
	if c := d.Layers[0][2].Block.(*arch.GatedConv); causal {
		c.Causal, c.Norm, c.Bias = true, d.Layers[0][2].Norm, arch.Weight{}
	}
	windows := someWindows()
	_, dh, weights := backward(t, load(t, newModel(t, d, src, 1)), windows)
	if _, got, gotWeights := backward(t, load(t, newModel(t, d, src, 7)), windows); !slices.Equal(got, dh) || !maps.EqualFunc(gotWeights, weights, slices.Equal) {
		t.Error("7 threads: other gradients")
	}
	if !testing.Short() {
		testGradients(t, d, src)
	}
}

// What is wrong with a layer of a Conformer is found before anything runs.
func TestConformerErrors(t *testing.T) {
	for name, change := range map[string]func(a *arch.Attention, c *arch.GatedConv){
		"causal":           func(a *arch.Attention, _ *arch.GatedConv) { a.Bidirectional = false },
		"window":           func(a *arch.Attention, _ *arch.GatedConv) { a.Window = 4 },
		"slopes":           func(a *arch.Attention, _ *arch.GatedConv) { a.Slopes = make([]float64, 4) },
		"keys with a bias": func(a *arch.Attention, _ *arch.GatedConv) { a.Relative.Keys.Bias = a.Q.Bias },
		"content":          func(a *arch.Attention, _ *arch.GatedConv) { a.Relative.Content.Rows++ },
		"keys":             func(a *arch.Attention, _ *arch.GatedConv) { a.Relative.Keys.Weight.Cols-- },
		"even taps":        func(_ *arch.Attention, c *arch.GatedConv) { c.Kernel.Cols = 8 },
		"bias":             func(_ *arch.Attention, c *arch.GatedConv) { c.Bias.Rows++ },
		"norm":             func(_ *arch.Attention, c *arch.GatedConv) { c.Norm = &arch.Norm{Gamma: c.Kernel, Eps: 1e-6} },
	} {
		d, src := conformerLayer()
		change(d.Layers[0][1].Block.(*arch.Attention), d.Layers[0][2].Block.(*arch.GatedConv))
		if _, err := New(d, src, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
