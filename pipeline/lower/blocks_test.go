package lower

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/tensor"
)

func madeVector(name string, n int) arch.Weight { return arch.Weight{Tensor: name, Rows: n} }

func madeTaps(p string, width, n int) []arch.Weight {
	var taps []arch.Weight
	for j := range n {
		taps = append(taps, madeVector(p+"tap."+strconv.Itoa(j), width))
	}
	return taps
}

func madeExperts(p string, n, top int) *arch.Experts {
	e := &arch.Experts{Router: madeLinear(p+"router", n, madeHidden, false), Scoring: arch.Softmax, TopK: top}
	for j := range n {
		e.Experts = append(e.Experts, *madeMLP(p+"expert."+strconv.Itoa(j)+".", true))
	}
	return e
}

// madeGrouped is the mixture of DeepSeek-V3.
func madeGrouped(p string) *arch.Experts {
	e := madeExperts(p, 6, 2)
	e.Scoring, e.Correction = arch.Sigmoid, madeVector(p+"correction", 6)
	e.Normalize, e.Epsilon, e.Scale = true, 1e-20, 2.5
	e.Groups, e.TopGroups, e.GroupTop = 3, 2, 2
	e.Shared = madeMLP(p+"shared.", true)
	return e
}

func madeLatent(p string, rope *arch.Rope) *arch.LatentAttention {
	const nope, turned, value, rank, down = 8, 4, 6, 10, 14
	return &arch.LatentAttention{
		Heads: madeHeads, NopeDim: nope, RopeDim: turned, ValueDim: value, QRank: down, KVRank: rank,
		QDown: madeLinear(p+"q_down", down, madeHidden, false), QNorm: madeNorm(p+"q_norm", down),
		QNope: madeLinear(p+"q_nope", madeHeads*nope, down, false), QRope: madeLinear(p+"q_rope", madeHeads*turned, down, false),
		KVDown: madeLinear(p+"kv_down", rank, madeHidden, false), KVNorm: madeNorm(p+"kv_norm", rank),
		KRope: madeLinear(p+"k_rope", turned, madeHidden, false),
		KNope: madeLinear(p+"k_nope", madeHeads*nope, rank, false), V: madeLinear(p+"v", madeHeads*value, rank, false),
		O: madeLinear(p+"o", madeHidden, madeHeads*value, false), Rope: rope, Scale: .25,
	}
}

func madeConv(p string, taps int) *arch.ShortConv {
	return &arch.ShortConv{
		In: madeLinear(p+"in", 3*madeHidden, madeHidden, false), Taps: madeTaps(p, madeHidden, taps), Out: madeLinear(p+"out", madeHidden, madeHidden, false),
	}
}

func madeDelta(p string) *arch.DeltaNet {
	const keys, values, keyDim, valueDim, width = 2, 4, 6, 5, 2*2*6 + 4*5
	return &arch.DeltaNet{
		KeyHeads: keys, ValueHeads: values, KeyDim: keyDim, ValueDim: valueDim,
		QKV: madeLinear(p+"qkv", width, madeHidden, false), Z: madeLinear(p+"z", values*valueDim, madeHidden, false),
		B: madeLinear(p+"b", values, madeHidden, false), A: madeLinear(p+"a", values, madeHidden, false),
		Taps: madeTaps(p, width, 4), Decay: madeVector(p+"decay", values), DtBias: madeVector(p+"dt_bias", values),
		Norm: *madeNorm(p+"norm", valueDim), Out: madeLinear(p+"out", madeHidden, values*valueDim, false),
	}
}

func madeMamba(p string, groups int) *arch.Mamba2 {
	const heads, dim, state = 4, 6, 5
	inner, width := heads*dim, heads*dim+2*groups*state
	return &arch.Mamba2{
		Heads: heads, HeadDim: dim, Groups: groups, State: state,
		Z: madeLinear(p+"z", inner, madeHidden, false), XBC: madeLinear(p+"xbc", width, madeHidden, false), Dt: madeLinear(p+"dt", heads, madeHidden, false),
		Taps: madeTaps(p, width, 4), ConvBias: madeVector(p+"conv_bias", width),
		DtBias: madeVector(p+"dt_bias", heads), Decay: madeVector(p+"decay", heads), D: madeVector(p+"d", heads), TimeMax: math.Inf(1),
		Norm: madeParts(p+"norm", inner, groups), Out: madeLinear(p+"out", madeHidden, inner, false),
	}
}

// replaced is a decoder of two plain layers with another block in the place of one of the first layer's.
func replaced(branch int, block arch.Block) func(*arch.Decoder, []*arch.Attention, []*arch.MLP) {
	return func(d *arch.Decoder, _ []*arch.Attention, _ []*arch.MLP) { d.Layers[0][branch].Block = block }
}

// blockCases have one of the blocks that are no attention and no MLP, or latent attention.
var blockCases = []struct {
	name    string
	change  func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP)
	options Options
	golden  bool
	// What the model keeps of a token, and besides.
	cache, state int64
	caches       int
	precision    string
}{
	{name: "experts of the largest softmax", golden: true, cache: 64, caches: 2, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		e := madeExperts("0.", 3, 2)
		e.Normalize = true
		e.Shared, e.SharedGate = madeMLP("0.shared.", true), madeLinear("0.shared_gate", 1, madeHidden, false)
		d.Layers[0][1].Block = e
	}},
	{name: "experts of groups", golden: true, cache: 64, caches: 2, change: replaced(1, madeGrouped("0."))},
	{name: "experts of a softmax of the largest", cache: 64, caches: 2, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		e := madeExperts("0.", 3, 2)
		e.Scoring, e.Router = arch.TopKSoftmax, madeLinear("0.router", 3, madeHidden, true)
		for j := range e.Experts {
			e.Experts[j].Activation, e.Experts[j].Alpha, e.Experts[j].Limit = arch.ClampedSwiGLU, 1.702, 7
		}
		d.Layers[0][1].Block = e
	}},
	{name: "experts of a sparse mixer", golden: true, cache: 64, caches: 2, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		e := madeExperts("0.", 3, 2)
		e.Scoring, e.Near = arch.SparseMixer, 0.02
		d.Layers[0][1].Block = e
	}},
	{name: "experts chosen by a corrected softmax", cache: 64, caches: 2, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		e := madeExperts("0.", 3, 2)
		e.Correction = madeVector("0.correction", 3)
		d.Layers[0][1].Block = e
	}},
	{name: "an expert with a scaled input", golden: true, cache: 64, caches: 2, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		e := madeExperts("0.", 2, 1)
		e.Scoring, e.ScaleInput = arch.Sigmoid, true
		d.Layers[0][1].Block = e
	}},
	{name: "experts in both layers", cache: 64, caches: 2, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		d.Layers[0][1].Block, d.Layers[1][1].Block = madeExperts("0.", 2, 1), madeGrouped("1.")
	}},
	{name: "latent attention expanded", golden: true, cache: 2*madeHeads*12 + 32, caches: 2, options: Options{Latent: LatentExpanded},
		change: replaced(0, madeLatent("0.", madeRope(4, 10000)))},
	{name: "latent attention cached", golden: true, cache: 2*14 + 32, caches: 2, options: Options{Latent: LatentCached},
		change: replaced(0, madeLatent("0.", madeRope(4, 10000)))},
	{name: "latent attention of whole queries and wide values", cache: 2*14 + 32, caches: 2, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		l := madeLatent("0.", madeRope(4, 10000))
		l.QRank, l.QDown, l.QNorm = 0, arch.Linear{}, nil
		l.QNope, l.QRope = madeLinear("0.q_nope", madeHeads*8, madeHidden, false), madeLinear("0.q_rope", madeHeads*4, madeHidden, false)
		l.ValueDim, l.V, l.O = 20, madeLinear("0.v", madeHeads*20, 10, false), madeLinear("0.o", madeHidden, madeHeads*20, false)
		d.Layers[0][0].Block = l
	}},
	{name: "short convolution", golden: true, cache: 32, caches: 3, state: 4 * 2 * madeHidden, change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		c := madeConv("0.", 3)
		c.Bias = madeVector("0.conv_bias", madeHidden)
		d.Layers[0][0].Block = c
	}},
	{name: "short convolution of one tap", cache: 32, caches: 1, change: replaced(0, madeConv("0.", 1))},
	{name: "delta net", golden: true, cache: 32, caches: 5, state: 4 * (44*3 + 44 + 4*6*5), change: replaced(0, madeDelta("0."))},
	{name: "mamba", golden: true, cache: 32, caches: 5, state: 4 * (44*3 + 44 + 4*5*6), precision: "high",
		change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			x := madeMamba("0.", 2)
			x.TimeMin, x.TimeMax = .001, .1
			d.Layers[0][0].Block = x
		}},
	{name: "mamba next to attention", cache: 64, caches: 6, state: 4 * (34*3 + 34 + 4*5*6), precision: "high",
		change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
			l := d.Layers[0]
			x := madeMamba("0.", 1)
			d.Layers[0] = arch.Layer{l[0], {Parallel: true, Norm: l[0].Norm, Block: x, Scale: .5}, l[1]}
		}},
	{name: "states of every kind", cache: 32, caches: 15, precision: "high", change: func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		bare := madeMamba("3.", 1)
		bare.Norm, bare.ConvBias = nil, arch.Weight{}
		for i, x := range []arch.Block{madeConv("0.", 4), madeDelta("1."), madeConv("2.", 4), bare} {
			n := strconv.Itoa(i) + ".n1"
			l := arch.Layer{{Norm: madeNorm(n, madeHidden), Block: x}}
			if i == 0 {
				d.Layers[0] = l
				continue
			}
			d.Layers = append(d.Layers, nil)
			copy(d.Layers[i+1:], d.Layers[i:])
			d.Layers[i] = l
		}
		d.Layers[4][0].Norm, d.Layers[4][1].Norm = madeNorm("4.n1", madeHidden), madeNorm("4.n2", madeHidden)
	}, state: 4 * (2*16*3 + 44*3 + 44 + 4*6*5 + 34*3 + 34 + 4*5*6)},
}

func TestBlocksGolden(t *testing.T) {
	for _, c := range blockCases {
		if !c.golden {
			continue
		}
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			m, err := Classic(made(c.change), c.options)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, listing(m))
		})
	}
}

func TestBlocksAreWellFormed(t *testing.T) {
	for _, c := range blockCases {
		t.Run(c.name, func(t *testing.T) {
			d := made(c.change)
			m, err := Classic(d, c.options)
			if err != nil {
				t.Fatal(err)
			}
			checkWellFormed(t, d, m)
			if m.CacheElements != c.cache || m.StateBytes != c.state || m.Caches != c.caches || m.Precision != c.precision {
				t.Errorf("%d elements, state of %d bytes, %d caches, precision %q", m.CacheElements, m.StateBytes, m.Caches, m.Precision)
			}
			if said := strings.Contains(strings.Join(m.Conditions, "\n"), "cannot go back"); said != (c.state > 0) {
				t.Errorf("conditions %q", m.Conditions)
			}
			keeps := 0
			for _, op := range m.Parts[0].Graph.Ops {
				if op.Type == mnn.OpAttention || op.Type == mnn.OpLinearAttention {
					keeps++
				}
			}
			if keeps != m.Caches {
				t.Errorf("%d ops keep something, not %d", keeps, m.Caches)
			}
		})
	}
}

// Routers, gates and what decides over decays are small, and errors in them are not.
func TestFineSlots(t *testing.T) {
	d := made(func(d *arch.Decoder, a []*arch.Attention, m []*arch.MLP) {
		e := madeExperts("0.", 2, 1)
		e.Shared, e.SharedGate = madeMLP("0.shared.", true), madeLinear("0.shared_gate", 1, madeHidden, false)
		d.Layers[0] = arch.Layer{{Block: madeDelta("0.delta.")}, {Block: madeMamba("0.mamba.", 1)}, {Block: e}}
	})
	m, err := Classic(d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"0.router.weight": true, "0.shared_gate.weight": true, "0.delta.a.weight": true, "0.delta.b.weight": true, "0.mamba.dt.weight": true}
	for _, s := range m.Parts[0].Slots {
		if s.Fine != want[s.Weight.Tensor] {
			t.Errorf("%s: fine %t", s.Weight.Tensor, s.Fine)
		}
	}
}

// The dimensions are those of published models.
func TestLatentForm(t *testing.T) {
	for _, c := range []struct {
		name                           string
		heads, nope, rope, value, rank int
		context                        int
		want                           string
	}{
		{"DeepSeek-V3", 128, 128, 64, 128, 512, 163840, LatentCached},
		{"DeepSeek-V2", 128, 128, 64, 128, 512, 163840, LatentCached},
		{"Kimi-K2", 64, 128, 64, 128, 512, 131072, LatentCached},
		{"MiniCPM3", 40, 64, 32, 64, 256, 32768, LatentCached},
		{"DeepSeek-V2-Lite", 16, 128, 64, 128, 512, 163840, LatentExpanded},
		{"DeepSeek-V3 with 512 tokens", 128, 128, 64, 128, 512, 512, LatentExpanded},
		{"small", 4, 16, 8, 16, 24, 512, LatentExpanded},
		{"values longer than keys", 4, 16, 8, 32, 24, 512, LatentCached},
	} {
		a := &arch.LatentAttention{Heads: c.heads, NopeDim: c.nope, RopeDim: c.rope, ValueDim: c.value, KVRank: c.rank}
		if got := latentForm(a, c.context, ""); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestBlockRefusals(t *testing.T) {
	experts := func(f func(e *arch.Experts)) arch.Block {
		e := madeGrouped("0.")
		f(e)
		return e
	}
	for _, c := range []struct {
		name    string
		branch  int
		block   arch.Block
		options Options
		kind    error
		want    string
	}{
		{"no experts", 1, &arch.Experts{TopK: 1}, Options{}, tensor.ErrCorrupt, "0 rows for 0 experts"},
		{"router of others", 1, experts(func(e *arch.Experts) { e.Experts = e.Experts[1:] }), Options{}, tensor.ErrCorrupt, "0.router.weight: 6 rows for 5 experts"},
		{"more than there are", 1, experts(func(e *arch.Experts) { e.TopK = 7 }), Options{}, tensor.ErrCorrupt, "7 of 6 experts"},
		{"none", 1, experts(func(e *arch.Experts) { e.TopK = 0 }), Options{}, tensor.ErrCorrupt, "0 of 6 experts"},
		{"uneven groups", 1, experts(func(e *arch.Experts) { e.Groups = 4 }), Options{}, tensor.ErrCorrupt, "2 of 4 groups, by their best 2 of 6 experts"},
		{"too few in the groups", 1, experts(func(e *arch.Experts) { e.TopK, e.TopGroups = 3, 1 }), Options{}, tensor.ErrCorrupt,
			"3 experts for a token, of 1 groups of 2"},
		{"more groups than there are", 1, experts(func(e *arch.Experts) { e.TopGroups = 4 }), Options{}, tensor.ErrCorrupt, "4 of 3 groups"},
		{"two scaled inputs", 1, experts(func(e *arch.Experts) { e.ScaleInput = true }), Options{}, tensor.ErrUnsupported, "scaled inputs of 2 experts"},
		{"unknown scoring", 1, experts(func(e *arch.Experts) { e.Scoring = "tanh" }), Options{}, tensor.ErrUnsupported, `scoring "tanh"`},
		{"unknown activation of an expert", 1, experts(func(e *arch.Experts) { e.Experts[4].Activation = "softsign" }), Options{}, tensor.ErrUnsupported, `expert 4: activation "softsign"`},
		{"taps of another width", 0, &arch.ShortConv{In: madeLinear("in", 3*madeHidden, madeHidden, false), Taps: madeTaps("0.", 4, 3)},
			Options{}, tensor.ErrCorrupt, "0.tap.0: 4 channels, not 16"},
		{"keys that no layer lends", 0, func() arch.Block {
			a := madeAttention("0.", nil)
			a.Borrows, a.K, a.V = true, arch.Linear{}, arch.Linear{}
			return a
		}(), Options{}, tensor.ErrCorrupt, "keys and values that no layer before lends"},
		{"bounds of keys of another layer", 0, func() arch.Block {
			a := madeAttention("0.", nil)
			a.Borrows, a.K, a.V, a.Clip = true, arch.Linear{}, arch.Linear{}, 1
			return a
		}(), Options{}, tensor.ErrUnsupported, "keys and values of another layer with norms, bounds"},
		{"no taps", 0, &arch.ShortConv{In: madeLinear("in", 3*madeHidden, madeHidden, false)}, Options{}, tensor.ErrCorrupt, "without taps"},
		{"rows of no delta net", 0, func() arch.Block { n := madeDelta("0."); n.KeyDim = 7; return n }(), Options{}, tensor.ErrCorrupt,
			"0.qkv.weight: 44 rows for 2 key heads of 7"},
		{"heads that share no keys", 0, func() arch.Block { n := madeDelta("0."); n.KeyHeads, n.KeyDim = 3, 4; return n }(), Options{},
			tensor.ErrCorrupt, "3 key heads of 4"},
		{"rows of no mamba", 0, func() arch.Block { n := madeMamba("0.", 1); n.State = 7; return n }(), Options{}, tensor.ErrCorrupt, "0.xbc.weight: 34 rows"},
		{"parts of a norm", 0, func() arch.Block { n := madeMamba("0.", 1); n.Norm.Parts = 5; return n }(), Options{},
			tensor.ErrUnsupported, "0.norm.gamma: a norm of 5 parts"},
		{"wide values expanded", 0, func() arch.Block { a := madeLatent("0.", madeRope(4, 10000)); a.ValueDim = 13; return a }(),
			Options{Latent: LatentExpanded}, tensor.ErrUnsupported, "values of 13 elements and keys of 12"},
		{"a bias in the cache", 0, func() arch.Block {
			a := madeLatent("0.", madeRope(4, 10000))
			a.V.Bias = madeVector("bias", 24)
			return a
		}(), Options{Latent: LatentCached}, tensor.ErrUnsupported, "0.k_nope.weight: a bias"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Classic(made(replaced(c.branch, c.block)), c.options)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "layer 0: ") || m != nil {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
	if _, err := Classic(made(nil), Options{Latent: "both"}); err == nil || !strings.Contains(err.Error(), `"both"`) {
		t.Errorf("unknown form: %v", err)
	}
}
