package forward

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// form is an optional feature of layers.
type form struct {
	name   string
	change func(d *arch.Decoder, m *maker)
}

// pairs calls f with the branches of every layer.
func pairs(d *arch.Decoder, f func(p string, attention, mlp *arch.Branch, a *arch.Attention, l *arch.MLP)) {
	for i := range d.Layers {
		f(fmt.Sprintf("%d.", i), &d.Layers[i][0], &d.Layers[i][1], attentionOf(d, i), mlpOf(d, i))
	}
}

func onAttention(change func(p string, a *arch.Attention, m *maker)) func(*arch.Decoder, *maker) {
	return func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, _, _ *arch.Branch, a *arch.Attention, _ *arch.MLP) { change(p, a, m) })
	}
}

func onMLP(change func(p string, l *arch.MLP, m *maker)) func(*arch.Decoder, *maker) {
	return func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, _, _ *arch.Branch, _ *arch.Attention, l *arch.MLP) { change(p, l, m) })
	}
}

// withActivation gives MLPs a function, and takes their gate if so asked.
func withActivation(f arch.Activation, gated bool) func(*arch.Decoder, *maker) {
	return onMLP(func(p string, l *arch.MLP, m *maker) {
		l.Activation = f
		if !gated {
			l.Gate = arch.Linear{}
		}
		if f == arch.XIELU {
			for i := range l.XIELU {
				l.XIELU[i] = m.vector(fmt.Sprint(p, "xielu", i), 1, 0.6)
			}
		}
	})
}

// layerNorm makes a norm a LayerNorm.
func layerNorm(n *arch.Norm, m *maker) {
	n.Centered, n.Beta = true, m.vector(n.Gamma.Tensor+" beta", n.Gamma.Rows, 0)
}

var forms = []form{
	{"LayerNorm", func(d *arch.Decoder, m *maker) {
		layerNorm(&d.FinalNorm, m)
		pairs(d, func(_ string, attention, mlp *arch.Branch, a *arch.Attention, _ *arch.MLP) {
			layerNorm(attention.Norm, m)
			layerNorm(mlp.Norm, m)
			a.QNorm.Centered = true // without a beta
		})
	}},
	{"norms on both sides, scaled branches", func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, attention, mlp *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			attention.PostNorm, mlp.PostNorm = m.norm(p+"behind attention", d.Hidden), m.norm(p+"behind mlp", d.Hidden)
			attention.Scale, mlp.Scale = 0.7, 1.3
		})
	}},
	{"norms behind the blocks only", func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, attention, mlp *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			attention.Norm, mlp.Norm = nil, nil
			attention.PostNorm, mlp.PostNorm = m.norm(p+"behind attention", d.Hidden), m.norm(p+"behind mlp", d.Hidden)
		})
	}},
	{"scaled branches", func(d *arch.Decoder, m *maker) {
		pairs(d, func(_ string, attention, mlp *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			attention.Scale, mlp.Scale = 0.3, 0.4
		})
	}},
	{"norms of whole projections", onAttention(func(p string, a *arch.Attention, m *maker) {
		a.QNorm, a.KNorm = m.norm(p+"wide q norm", a.Heads*a.HeadDim), m.norm(p+"wide k norm", a.KVHeads*a.HeadDim)
	})},
	{"norms behind the rotation", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.NormAfter = true })},
	{"a partial table and none", func(d *arch.Decoder, _ *maker) {
		d.Ropes = []*arch.Rope{{Type: "yarn", Dim: 4, InvFreq: []float64{0.7, 0.2}, Scale: 1.2}}
		attentionOf(d, 0).Rope, attentionOf(d, 1).Rope = d.Ropes[0], nil
	}},
	{"two tables, one of them long", func(d *arch.Decoder, _ *maker) {
		d.Ropes = append(d.Ropes, &arch.Rope{Type: "longrope", Dim: 8, InvFreq: []float64{1, 1, 1, 1}, Long: []float64{0.8, 0.2, 0.1, 0.01},
			Original: 60, Scale: 1.1})
		attentionOf(d, 1).Rope = d.Ropes[1]
	}},
	{"windows and scale", onAttention(func(p string, a *arch.Attention, _ *maker) {
		a.Scale = 0.8
		if p == "0." {
			a.Window = 19
		}
	})},
	{"clipped", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.Clip, a.QNorm, a.KNorm = 0.4, nil, nil })},
	{"clipped behind norms", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.Clip = 0.8 })},
	{"clipped before norms", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.Clip, a.NormAfter = 0.4, true })},
	{"chunks", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.Chunk = 24 })},
	{"slopes", onAttention(func(_ string, a *arch.Attention, _ *maker) {
		a.Rope = nil
		for h := range a.Heads {
			a.Slopes = append(a.Slopes, 0.3/float64(h+1))
		}
	})},
	{"capped scores in a window", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.Cap, a.Window, a.Scale = 1.5, 30, 0.9 })},
	{"gated heads", onAttention(func(p string, a *arch.Attention, m *maker) {
		a.Gate = m.linear(p+"head gate", a.Heads*a.HeadDim, randomHidden)
	})},
	{"norms before o and down", func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, _, _ *arch.Branch, a *arch.Attention, l *arch.MLP) {
			a.OutNorm, l.Norm = m.norm(p+"out norm", a.Heads*a.HeadDim), m.norm(p+"inner norm", l.Intermediate)
		})
	}},
	{"gated heads, norm before o", onAttention(func(p string, a *arch.Attention, m *maker) {
		a.Gate, a.OutNorm = m.linear(p+"head gate", a.Heads*a.HeadDim, randomHidden), m.norm(p+"out norm", a.Heads*a.HeadDim)
	})},
	{"sinks", onAttention(func(p string, a *arch.Attention, m *maker) { a.Sinks = m.vector(p+"sinks", a.Heads, 0.5) })},
	{"temperature", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.Temperature = &arch.Temperature{Floor: 16, Scale: 0.4} })},
	{"values that are keys", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.V = arch.Linear{} })},
	{"values that are keys, with a norm, behind the rotation", onAttention(func(p string, a *arch.Attention, m *maker) {
		a.V, a.VNorm, a.NormAfter = arch.Linear{}, m.norm(p+"v norm", a.HeadDim), true
	})},
	{"norms of heads with gains of their own", onAttention(func(p string, a *arch.Attention, m *maker) {
		a.QNorm, a.KNorm = m.norm(p+"q norms", a.Heads*a.HeadDim), m.norm(p+"k norms", a.KVHeads*a.HeadDim)
		a.QNorm.Parts, a.KNorm.Parts = a.Heads, a.KVHeads
		layerNorm(a.KNorm, m)
	})},
	{"norms of the stream", func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, attention, mlp *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			attention.SumNorm, mlp.SumNorm = m.norm(p+"sum of attention", d.Hidden), m.norm(p+"sum of mlp", d.Hidden)
			layerNorm(mlp.SumNorm, m)
			attention.Gain = m.vector(p+"attention gain", 1, 0.9)
		})
	}},
	{"both ways", onAttention(func(_ string, a *arch.Attention, _ *maker) { a.Bidirectional = true })},
	{"embeddings normalised last", func(d *arch.Decoder, m *maker) {
		d.NormLast, d.EmbeddingNorm = true, m.norm("embedding norm", d.Hidden)
		layerNorm(d.EmbeddingNorm, m)
		d.Segment = m.vector("segment", d.Hidden, 0.4)
		d.Positions, d.FirstPosition, d.MaxPositions = m.matrix("positions", 162, d.Hidden), 2, 160
	}},
	{"gains of the stream", func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, attention, mlp *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			attention.Gain, mlp.Gain = m.vector(p+"attention gain", 1, 0.9), m.vector(p+"mlp gain", 1, 1.1)
		})
	}},
	{"parallel branches", func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, attention, mlp *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			mlp.Parallel, mlp.Scale = true, 0.7
			attention.Gain, mlp.Gain = m.vector(p+"attention gain", 1, 0.9), m.vector(p+"mlp gain", 1, 1.1)
		})
		d.Layers[1][1].Norm, d.Layers[1][1].PostNorm = nil, m.norm("behind the parallel mlp", d.Hidden)
	}},
	{"clamped products", onMLP(func(_ string, l *arch.MLP, _ *maker) { l.Activation, l.Alpha, l.Limit = arch.ClampedSwiGLU, 1.7, 0.8 })},
	{"scaled gates", onMLP(func(_ string, l *arch.MLP, _ *maker) { l.GateScale = 1.7 })},
	{"gelu, gated", withActivation(arch.GELU, true)},
	{"gelu", withActivation(arch.GELU, false)},
	{"gelu_tanh, gated", withActivation(arch.GELUTanh, true)},
	{"gelu_tanh", withActivation(arch.GELUTanh, false)},
	{"relu, gated", withActivation(arch.ReLU, true)},
	{"relu", withActivation(arch.ReLU, false)},
	{"relu2, gated", withActivation(arch.ReLU2, true)},
	{"relu2", withActivation(arch.ReLU2, false)},
	{"xielu, gated", withActivation(arch.XIELU, true)},
	{"xielu", withActivation(arch.XIELU, false)},
	{"silu", withActivation(arch.SiLU, false)},
	{"scaled embeddings", func(d *arch.Decoder, _ *maker) { d.EmbeddingScale = 1.9 }},
	{"normalised embeddings", func(d *arch.Decoder, m *maker) {
		d.EmbeddingScale, d.EmbeddingNorm = 0.8, m.norm("embedding norm", d.Hidden)
		layerNorm(d.EmbeddingNorm, m)
	}},
	{"learned positions", func(d *arch.Decoder, m *maker) {
		d.EmbeddingScale, d.MaxPositions, d.FirstPosition = 0.8, 160, 2
		d.Positions = m.linear("positions", 162, d.Hidden).Weight
	}},
	{"scaled logits", func(d *arch.Decoder, _ *maker) { d.LogitScale = 0.6 }},
	{"capped logits", func(d *arch.Decoder, _ *maker) { d.LogitScale, d.LogitCap = 1.4, 2.5 }},
	{"a bias on the table", func(d *arch.Decoder, m *maker) { d.Head.Bias = m.vector("head bias", d.Vocab, 0) }},
}

// Every form, in the features of the gradients' test.
func eachForm(t *testing.T, f func(t *testing.T, d *arch.Decoder, src *memory)) {
	for _, c := range forms {
		t.Run(c.name, func(t *testing.T) {
			d, m := makeModel(features{heads: 4, kvHeads: 2, norms: true})
			c.change(d, m)
			f(t, d, m.src)
		})
	}
}

// Weights in memory and weights that are read when they are needed give the same bits, and so do windows that grow by a
// token at a time.
func TestForms(t *testing.T) {
	i := 0
	eachForm(t, func(t *testing.T, d *arch.Decoder, src *memory) {
		if i++; testing.Short() && i%3 != 1 {
			return
		}
		windows := randomTokens(d.Vocab, 2, 140)
		want := load(t, newModel(t, d, src, 2)).logits(t, windows)
		if got := slices.Concat(scoreAll(t, newModel(t, d, src, 2), windows)...); !slices.Equal(got, want) {
			t.Error("other logits with weights that are not loaded")
		}
		if bothWays(d) {
			if _, err := newModel(t, d, src, 2).NewCache(1, 8); !errors.Is(err, tensor.ErrUnsupported) {
				t.Errorf("a cache of keys after the present token: %v", err)
			}
			return
		}
		if got := grown(t, newModel(t, d, src, 2), windows, 0); !slices.Equal(got, want) {
			t.Error("other logits of windows that grow")
		}
	})
}
