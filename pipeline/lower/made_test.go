package lower

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Dimensions of the made-up decoders.
const (
	madeHidden    = 16
	madeVocab     = 32
	madePositions = 64
	madeHeads     = 4
	madeKV        = 2
	madeDim       = 8
	madeWide      = 24
)

func madeLinear(name string, rows, cols int, bias bool) arch.Linear {
	l := arch.Linear{Weight: arch.Weight{Tensor: name + ".weight", Rows: rows, Cols: cols}}
	if bias {
		l.Bias = arch.Weight{Tensor: name + ".bias", Rows: rows}
	}
	return l
}

func madeNorm(name string, n int) *arch.Norm {
	return &arch.Norm{Gamma: arch.Weight{Tensor: name + ".gamma", Rows: n}, Eps: 1e-6}
}

// madeParts is a norm in parts.
func madeParts(name string, n, parts int) *arch.Norm {
	norm := madeNorm(name, n)
	norm.Parts = parts
	return norm
}

// madeLayerNorm is centered, with a bias if asked for.
func madeLayerNorm(name string, n int, bias bool) *arch.Norm {
	norm := madeNorm(name, n)
	norm.Centered, norm.Eps = true, 1e-5
	if bias {
		norm.Beta = arch.Weight{Tensor: name + ".beta", Rows: n}
	}
	return norm
}

func madeRope(dim int, theta float64) *arch.Rope {
	r := &arch.Rope{Type: "default", Dim: dim, Scale: 1}
	for j := range dim / 2 {
		r.InvFreq = append(r.InvFreq, math.Pow(theta, -2*float64(j)/float64(dim)))
	}
	return r
}

func madeAttention(p string, rope *arch.Rope) *arch.Attention {
	return &arch.Attention{
		Heads: madeHeads, KVHeads: madeKV, HeadDim: madeDim, Rope: rope,
		Q: madeLinear(p+"q", madeHeads*madeDim, madeHidden, false),
		K: madeLinear(p+"k", madeKV*madeDim, madeHidden, false),
		V: madeLinear(p+"v", madeKV*madeDim, madeHidden, false),
		O: madeLinear(p+"o", madeHidden, madeHeads*madeDim, false),
	}
}

func madeMLP(p string, gated bool) *arch.MLP {
	m := &arch.MLP{
		Intermediate: madeWide, Activation: arch.SiLU,
		Up: madeLinear(p+"up", madeWide, madeHidden, false), Down: madeLinear(p+"down", madeHidden, madeWide, false),
	}
	if gated {
		m.Gate = madeLinear(p+"gate", madeWide, madeHidden, false)
	}
	return m
}

// made is a decoder of two plain layers, which the cases change.
func made(change func(d *arch.Decoder, attention []*arch.Attention, mlp []*arch.MLP)) *arch.Decoder {
	d := &arch.Decoder{
		Hidden: madeHidden, Vocab: madeVocab, MaxPositions: madePositions,
		Embedding: arch.Weight{Tensor: "embedding", Rows: madeVocab, Cols: madeHidden},
		FinalNorm: *madeNorm("final", madeHidden), Head: madeLinear("head", madeVocab, madeHidden, false),
	}
	rope := madeRope(madeDim, 10000)
	d.Ropes = []*arch.Rope{rope}
	var attentions []*arch.Attention
	var mlps []*arch.MLP
	for i := range 2 {
		p := strconv.Itoa(i) + "."
		a, m := madeAttention(p, rope), madeMLP(p, true)
		attentions, mlps = append(attentions, a), append(mlps, m)
		d.Layers = append(d.Layers, arch.Layer{{Norm: madeNorm(p+"n1", madeHidden), Block: a}, {Norm: madeNorm(p+"n2", madeHidden), Block: m}})
	}
	if change != nil {
		change(d, attentions, mlps)
	}
	return d
}

// madeCases cover every feature of a decoder that this package lowers to ops of its own.
var madeCases = []struct {
	name    string
	change  func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP)
	options Options
	check   func(t *testing.T, m *Model)
}{
	{name: "embedding and logits", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		d.EmbeddingScale, d.EmbeddingNorm = 4, madeLayerNorm("embedding_norm", madeHidden, true)
		d.FinalNorm = *madeLayerNorm("final", madeHidden, false)
		d.Head.Bias = arch.Weight{Tensor: "head.bias", Rows: madeVocab}
		d.LogitScale, d.LogitCap = .0625, 30
		d.Precision = "normal"
	}, check: func(t *testing.T, m *Model) {
		if m.Precision != "normal" {
			t.Errorf("precision %q", m.Precision)
		}
	}},
	{name: "learned positions", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Rope, a[1].Rope, d.Ropes = nil, nil, nil
		d.Positions, d.FirstPosition = arch.Weight{Tensor: "positions", Rows: madePositions + 2, Cols: madeHidden}, 2
	}, check: func(t *testing.T, m *Model) {
		i := slices.IndexFunc(m.Parts[0].Slots, func(s Slot) bool { return s.Weight.Tensor == "positions" })
		if i < 0 || m.Parts[0].Slots[i].Kind != ConstSlot || m.Parts[0].Slots[i].Weight.Rows != madePositions+2 {
			t.Errorf("slot %d of %v", i, m.Parts[0].Slots)
		}
	}},
	{name: "parallel branches", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		for i := range d.Layers {
			d.Layers[i][1].Parallel = true
		}
		d.Layers[0][1].Norm = d.Layers[0][0].Norm // one norm for both
	}, check: func(t *testing.T, m *Model) {
		norms := 0
		for _, op := range m.Parts[0].Graph.Ops {
			if op.Type == mnn.OpLayerNorm {
				norms++
			}
		}
		if norms != 4 {
			t.Errorf("%d norms", norms)
		}
	}},
	{name: "norms behind blocks", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		l := d.Layers[0]
		l[0].Norm, l[1].Norm = nil, nil
		l[0].PostNorm, l[1].PostNorm = madeNorm("0.p1", madeHidden), madeNorm("0.p2", madeHidden)
		d.Layers[1][0].Scale, d.Layers[1][1].Scale = .22, .22
	}},
	{name: "norms of heads and projections", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].QNorm, a[0].KNorm = madeNorm("0.q_norm", madeHeads*madeDim), madeNorm("0.k_norm", madeKV*madeDim)
		a[0].OutNorm = madeNorm("0.o_norm", madeHeads*madeDim)
		a[1].QNorm, a[1].KNorm, a[1].NormAfter = madeLayerNorm("1.q_norm", madeDim, false), madeLayerNorm("1.k_norm", madeDim, true), true
	}},
	{name: "norms of every head and clipping", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].QNorm, a[0].KNorm = madeParts("0.q_norm", madeHeads*madeDim, madeHeads), madeParts("0.k_norm", madeKV*madeDim, madeKV)
		a[0].QNorm.Centered, a[0].KNorm.Centered = true, true
		a[0].Clip, a[1].Clip = 8, 4
		a[1].QNorm, a[1].NormAfter = madeParts("1.q_norm", madeHeads*madeDim, madeHeads), true
	}},
	{name: "rotary tables", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[1].Rope = madeRope(madeDim/2, 500)
		a[1].Rope.Scale = 1.25
		d.Ropes = append(d.Ropes, a[1].Rope)
	}},
	{name: "no rotation", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Rope, a[1].Rope = nil, nil
	}},
	{name: "long factors", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Rope.Long, a[0].Rope.Original, a[0].Rope.Scale = []float64{.5, .25, .125, .0625}, 20, 1.1
	}, check: func(t *testing.T, m *Model) {
		if !m.Whole || len(m.Conditions) != 1 || !strings.Contains(m.Conditions[0], "20") {
			t.Errorf("whole %t, conditions %q", m.Whole, m.Conditions)
		}
	}},
	{name: "long factors that no call reaches", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Rope.Long, a[0].Rope.Original = []float64{.5, .25, .125, .0625}, 20
	}, options: Options{Context: 20}, check: func(t *testing.T, m *Model) {
		if m.Whole || m.Conditions != nil || m.Context != 20 {
			t.Errorf("whole %t, conditions %q, context %d", m.Whole, m.Conditions, m.Context)
		}
	}},
	{name: "scale gate and temperature", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Scale = .5
		a[0].Gate = madeLinear("0.attention_gate", madeHeads*madeDim, madeHidden, true)
		a[1].Scale = 1 / math.Sqrt(madeDim) // the op's own
		a[1].Temperature = &arch.Temperature{Floor: 8, Scale: .1, Offset: 1}
	}},
	{name: "values that are keys", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].V, a[0].KNorm, a[0].VNorm = arch.Linear{}, madeNorm("0.k_norm", madeDim), madeNorm("0.v_norm", madeDim)
		a[1].VNorm = madeNorm("1.v_norm", madeKV*madeDim)
		d.Layers[0][0].Gain = arch.Weight{Tensor: "0.gain", Rows: 1}
		d.Layers[1][1].Gain = arch.Weight{Tensor: "1.gain", Rows: 1}
	}},
	{name: "sum of branches", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		e := &arch.Experts{
			RouterNorm: madeNorm("router_norm", madeHidden), Norm: madeNorm("experts_norm", madeHidden), Router: madeLinear("router", 2, madeHidden, false),
			Scoring: arch.Softmax, TopK: 1, Normalize: true, Gains: arch.Weight{Tensor: "gains", Rows: 2},
			Experts: []arch.MLP{*madeMLP("e0.", true), *madeMLP("e1.", true)},
		}
		d.Layers[1][1] = arch.Branch{PostNorm: madeNorm("post", madeHidden), Block: &arch.Sum{Branches: []arch.Branch{
			{Norm: madeNorm("dense_norm", madeHidden), Block: m[1], PostNorm: madeNorm("dense_post", madeHidden)}, {Block: e, Scale: .5},
		}}}
	}},
	{name: "one window", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Window = 8
		a[1].Window = madePositions // no window
	}, check: func(t *testing.T, m *Model) {
		if m.Window != 8 {
			t.Errorf("window %d", m.Window)
		}
	}},
	{name: "one window with sinks", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Window = 8
		a[0].Sinks, a[1].Sinks = arch.Weight{Tensor: "0.sinks", Rows: madeHeads}, arch.Weight{Tensor: "1.sinks", Rows: madeHeads}
	}, check: func(t *testing.T, m *Model) {
		if m.Window != 8 {
			t.Errorf("window %d", m.Window)
		}
	}},
	{name: "sinks", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Sinks = arch.Weight{Tensor: "0.sinks", Rows: madeHeads}
	}, check: func(t *testing.T, m *Model) {
		if m.Window != 0 {
			t.Errorf("window %d", m.Window)
		}
	}},
	{name: "two windows and a chunk", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		third := madeAttention("2.", a[0].Rope)
		third.Chunk = 10
		d.Layers = append(d.Layers, arch.Layer{{Norm: madeNorm("2.n1", madeHidden), Block: third}})
		a[0].Window, a[1].Window = 8, 12
	}, check: func(t *testing.T, m *Model) {
		if m.Window != 0 || m.Caches != 3 || m.CacheElements != 3*2*madeKV*madeDim {
			t.Errorf("window %d, %d caches, %d elements", m.Window, m.Caches, m.CacheElements)
		}
	}},
	{name: "slopes", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		for _, a := range a {
			a.Rope, a.Slopes = nil, []float64{.25, .0625, .015625, .00390625}
		}
	}, check: func(t *testing.T, m *Model) {
		if !strings.Contains(strings.Join(m.Conditions, "\n"), "masks take 16 bytes") {
			t.Errorf("conditions %q", m.Conditions)
		}
		if m.Caches != 2*madeHeads || m.CacheElements != 2*2*madeHeads*madeDim {
			t.Errorf("%d caches, %d elements", m.Caches, m.CacheElements)
		}
	}},
	{name: "capped scores", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		a[0].Cap, a[0].Window, a[0].Scale = 5, 8, .5
		a[1].Cap = 5
	}, check: func(t *testing.T, m *Model) {
		if m.Precision != "high" || m.CacheElements != 0 || m.StateBytes < 2*2*4*madeHeads*madeDim*madePositions {
			t.Errorf("precision %q, %d elements, state of %d bytes", m.Precision, m.CacheElements, m.StateBytes)
		}
	}},
	{name: "activations", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		d.Layers = d.Layers[:0]
		for i, act := range []arch.Activation{arch.GELU, arch.GELUTanh, arch.ReLU2, arch.XIELU, arch.SiLU, arch.ClampedSwiGLU, arch.ReLU} {
			p := strconv.Itoa(i) + "."
			m := madeMLP(p, i%2 == 1)
			m.Activation, m.Alpha, m.Limit = act, 1.702, 7
			m.Up.Bias = arch.Weight{Tensor: p + "up.bias", Rows: madeWide}
			switch act {
			case arch.XIELU:
				for k := range m.XIELU {
					m.XIELU[k] = arch.Weight{Tensor: p + "xielu." + strconv.Itoa(k), Rows: 1}
				}
			case arch.ReLU2:
				m.Norm = madeNorm(p+"norm", madeWide)
			}
			d.Layers = append(d.Layers, arch.Layer{{Norm: madeNorm(p+"n", madeHidden), Block: m}})
		}
	}},
	{name: "two blocks of a kind", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		d.Layers = []arch.Layer{append(d.Layers[0], d.Layers[1]...)}
	}},
}

func TestMadeGolden(t *testing.T) {
	for _, c := range madeCases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			m, err := Classic(made(c.change), c.options)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, listing(m))
		})
	}
}

func TestMadeIsWellFormed(t *testing.T) {
	for _, c := range madeCases {
		t.Run(c.name, func(t *testing.T) {
			d := made(c.change)
			m, err := Classic(d, c.options)
			if err != nil {
				t.Fatal(err)
			}
			checkWellFormed(t, d, m)
			if c.check != nil {
				c.check(t, m)
			}
		})
	}
}

func TestMadeRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP)
		options Options
		want    string
	}{
		{"cap without a bound", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { a[1].Cap, d.MaxPositions = 50, 8192 },
			Options{}, "layer 1: capped attention scores need a bounded context: set target.context"},
		{"cap with too long a context", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			a[1].Cap, d.MaxPositions = 50, 8192
		}, Options{Context: 5000}, "target.context 5000"},
		{"cap with sinks", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			a[1].Cap, a[1].Sinks = 50, arch.Weight{Tensor: "sinks", Rows: madeHeads}
		}, Options{}, "capped attention scores together with"},
		{"slopes with sinks", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			a[1].Slopes, a[1].Sinks = make([]float64, madeHeads), arch.Weight{Tensor: "sinks", Rows: madeHeads}
		}, Options{}, "sinks together with"},
		{"slopes of other heads", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { a[0].Slopes = []float64{1} }, Options{},
			"1 biases of the distance for 4 heads"},
		{"rotation of too much", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { a[0].Rope.Dim = madeDim + 2 }, Options{}, "rotation of 10 elements"},
		{"norm of two heads", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { a[0].QNorm = madeNorm("q_norm", 2*madeDim) },
			Options{}, "q_norm.gamma: a norm of 16 elements for 4 heads of 8"},
		{"norm of fewer parts than heads", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			a[0].QNorm = madeParts("q_norm", madeHeads*madeDim, 2)
		}, Options{}, "q_norm.gamma: a norm of 2 parts of 32 elements for 4 heads of 8"},
		{"norm of the stream in parts", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			d.Layers[0][0].Norm.Parts = 2
		}, Options{}, "a norm of 2 parts"},
		{"values that are keys with a norm of all heads", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			a[0].V, a[0].KNorm = arch.Linear{}, madeNorm("k_norm", madeKV*madeDim)
		}, Options{}, "values that are keys, with norms of all heads together"},
		{"sum of none", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { d.Layers[0][1].Block = &arch.Sum{} }, Options{}, "a sum of no branches"},
		{"gain within a sum", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			d.Layers[0][1].Block = &arch.Sum{Branches: []arch.Branch{{Block: m[0], Gain: arch.Weight{Tensor: "gain", Rows: 1}}}}
		}, Options{}, "a branch of a sum is parallel or has a factor"},
		{"norm of a head before the output",
			func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { a[0].OutNorm = madeNorm("o_norm", madeDim) }, Options{},
			"o_norm.gamma: a norm of 8 elements for rows of 32"},
		{"norm of a part of the MLP", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { m[0].Norm = madeNorm("norm", 12) },
			Options{}, "norm.gamma: a norm of 12 elements for rows of 24"},
		{"RMSNorm with a bias", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			d.Layers[1][0].Norm.Beta = arch.Weight{Tensor: "beta", Rows: madeHidden}
		}, Options{}, "beta: RMSNorm with a bias"},
		{"temperature of half a position", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			a[0].Temperature = &arch.Temperature{Floor: .5, Scale: 1}
		}, Options{}, "temperature in steps of 0.5"},
		{"unknown activation", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) { m[0].Activation = "softsign" }, Options{}, `activation "softsign"`},
		{"clamped activation without a gate", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			m[0].Activation, m[0].Gate = arch.ClampedSwiGLU, arch.Linear{}
		}, Options{}, "without a gate"},
		{"tables too large together", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			d.MaxPositions = 1 << 26
			a[0].Rope.Dim = 1 << 12
			a[0].Rope.Long = make([]float64, 1<<10)
		}, Options{}, "rotary tables of 536870912"},
		{"too fast a second rotation", func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			a[1].Rope = madeRope(madeDim, 10000)
			a[1].Rope.InvFreq[0] = 1e9
		}, Options{}, "rotary angle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Classic(made(c.change), c.options)
			if !errors.Is(err, tensor.ErrUnsupported) || !strings.Contains(err.Error(), c.want) || m != nil {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
}
