package net

import (
	"fmt"
	"math"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/verify/reference"
)

// form is what layers may have beside what all have.
type form struct {
	name   string
	change func(d *arch.Decoder, m *maker)
}

// pairs calls f with the branches of every layer.
func pairs(d *arch.Decoder, f func(p string, attention, mlp *arch.Branch, a *arch.Attention, l *arch.MLP)) {
	for i := range d.Layers {
		x := d.Pair(i)
		f(fmt.Sprintf("%d.", i), &d.Layers[i][0], &d.Layers[i][1], x.Attention, x.MLP)
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
		d.Pair(0).Attention.Rope, d.Pair(1).Attention.Rope = d.Ropes[0], nil
	}},
	{"two tables, one of them long", func(d *arch.Decoder, _ *maker) {
		d.Ropes = append(d.Ropes, &arch.Rope{Type: "longrope", Dim: 8, InvFreq: []float64{1, 1, 1, 1}, Long: []float64{0.8, 0.2, 0.1, 0.01}, Original: 60, Scale: 1.1})
		d.Pair(1).Attention.Rope = d.Ropes[1]
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

// The reference computes the same from the same description.
func TestForms(t *testing.T) {
	eachForm(t, func(t *testing.T, d *arch.Decoder, src *memory) {
		windows := randomTokens(d.Vocab, 2, 140)
		got := load(t, newModel(t, d, src, 2)).logits(t, windows)
		m, err := reference.New(d, src, reference.Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		var want []float32
		if err := m.Score(t.Context(), windows, func(tile reference.Tile) error { want = append(want, tile.Logits...); return nil }); err != nil {
			t.Fatal(err)
		}
		var worst float64
		for i := range want {
			worst = max(worst, math.Abs(float64(got[i]-want[i])))
		}
		if len(got) != len(want) || !(worst <= logitBound) {
			t.Errorf("%d logits instead of %d, off by %g", len(got), len(want), worst)
		}
	})
}

// Text is what the forward pass finds likeliest, in all forms.
func TestSampleForms(t *testing.T) {
	eachForm(t, func(t *testing.T, d *arch.Decoder, src *memory) {
		const length = 90
		m := newModel(t, d, src, 2)
		windows := sample(t, m, Sampling{Windows: 2, Length: length, First: []int32{3, 44, 12}, Temperature: 1, TopK: 1})
		logits := load(t, newModel(t, d, src, 1)).logits(t, windows)
		for at := range 2 * length {
			if at%length < 2 || at%length == length-1 {
				continue
			}
			row := logits[at*d.Vocab : (at+1)*d.Vocab]
			best, got := row[kernel.ArgMax(row)], row[windows[at/length][at%length+1]]
			if best-got > logitBound {
				t.Fatalf("token %d has the logit %v, the likeliest %v", at+1, got, best)
			}
		}
	})
}
