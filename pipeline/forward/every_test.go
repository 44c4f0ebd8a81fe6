package forward

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
	"github.com/llmexport/llmexport/runtime/kernel"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// inventor makes a decoder and random weights for it.
type inventor struct {
	*memory
	r      *rand.Rand
	hidden int
}

// weight is a new tensor of numbers spread evenly around mean; cols 0 makes a vector.
func (m *inventor) weight(rows, cols int, mean, deviation float64) arch.Weight {
	shape := tensor.Shape{int64(rows)}
	if cols > 0 {
		shape = append(shape, int64(cols))
	}
	name := fmt.Sprintf("tensor %d", len(m.infos))
	var b []byte
	for range rows * max(cols, 1) {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(mean+float64(math.Sqrt(3)*deviation*(2*m.r.Float64()-1)))))
	}
	m.infos = append(m.infos, tensor.Info{Name: name, DType: tensor.F32, Shape: shape, Size: int64(len(b))})
	m.data[name] = b
	return arch.Weight{Tensor: name, Rows: rows, Cols: cols}
}

func (m *inventor) linear(rows, cols int) arch.Linear {
	return arch.Linear{Weight: m.weight(rows, cols, 0, 1/math.Sqrt(float64(cols))), Bias: m.weight(rows, 0, 0, .1)}
}

func (m *inventor) norm(n int) *arch.Norm {
	return &arch.Norm{Gamma: m.weight(n, 0, 1, .1), Eps: 1e-6}
}

// parted divides a norm.
func parted(n *arch.Norm, parts int) *arch.Norm {
	n.Parts = parts
	return n
}

func (m *inventor) taps(channels, n int) (w []arch.Weight) {
	for range n {
		w = append(w, m.weight(channels, 0, 0, .5))
	}
	return w
}

func (m *inventor) mlp(act arch.Activation, intermediate int) *arch.MLP {
	return &arch.MLP{
		Intermediate: intermediate, Activation: act, Alpha: 1.7, Limit: .8,
		Gate: m.linear(intermediate, m.hidden), Up: m.linear(intermediate, m.hidden), Down: m.linear(m.hidden, intermediate),
	}
}

func (m *inventor) attention(heads, kvHeads, dim int, rope *arch.Rope) *arch.Attention {
	return &arch.Attention{
		Heads: heads, KVHeads: kvHeads, HeadDim: dim, Rope: rope,
		Q: m.linear(heads*dim, m.hidden), K: m.linear(kvHeads*dim, m.hidden), V: m.linear(kvHeads*dim, m.hidden), O: m.linear(m.hidden, heads*dim),
	}
}

// Places in the layers of everything.
const (
	attentionLayer = iota // attention and parallel to it Mamba 2, gated MLP
	latentLayer           // latent attention, experts in groups
	deltaLayer            // delta net, MLP without gate
	convLayer             // short convolution, xIELU
	chunkLayer            // attention in chunks, experts that scale their input
	sumLayer              // attention whose keys are its values, the sum of an MLP and experts with norms

	layersOfEverything
)

// everything is a decoder with every block and every option of them.
func everything() (*arch.Decoder, *memory) {
	const hidden, vocab = 48, 320
	m := &inventor{&memory{data: make(map[string][]byte)}, rand.New(rand.NewPCG(1, 2)), hidden}
	rope := &arch.Rope{Dim: 8, InvFreq: []float64{1, .3, .1, .03}, Scale: 1.1, Long: []float64{.5, .2, .07, .01}, Original: 40}

	first := m.attention(4, 2, 12, rope)
	first.QNorm, first.KNorm, first.OutNorm = m.norm(48), m.norm(12), m.norm(48)
	first.Scale, first.Cap, first.Window = .3, 20, 16
	first.Slopes = []float64{.5, .25, .125, .0625}
	first.Sinks, first.Gate = m.weight(4, 0, 0, 1), m.linear(48, hidden)
	first.Temperature = &arch.Temperature{Floor: 8, Scale: .1, Offset: 1}
	centered := m.norm(hidden)
	centered.Centered, centered.Beta = true, m.weight(hidden, 0, 0, .1)

	grouped := &arch.Experts{
		Router: m.linear(8, hidden), Scoring: arch.Sigmoid, Correction: m.weight(8, 0, 0, .2), TopK: 2, Normalize: true, Epsilon: 1e-20,
		Scale: 2.5, Groups: 4, TopGroups: 2, GroupTop: 2, Shared: m.mlp(arch.GELUTanh, 40), SharedGate: m.linear(1, hidden),
	}
	for range 8 {
		grouped.Experts = append(grouped.Experts, *m.mlp(arch.SiLU, 20))
	}
	ungated, xielu := m.mlp(arch.GELU, 60), m.mlp(arch.XIELU, 30)
	ungated.Gate, ungated.Norm = arch.Linear{}, m.norm(60)
	xielu.XIELU = [3]arch.Weight{m.weight(1, 0, .8, 0), m.weight(1, 0, 1.2, 0), m.weight(1, 0, .5, 0)}
	chunked := m.attention(6, 2, 10, nil)
	chunked.Chunk, chunked.NormAfter, chunked.QNorm, chunked.KNorm = 16, true, m.norm(10), m.norm(20)
	single := &arch.Experts{Router: m.linear(4, hidden), Scoring: arch.Softmax, TopK: 1, ScaleInput: true}
	for range 4 {
		single.Experts = append(single.Experts, *m.mlp(arch.ReLU2, 24))
	}

	same, normed := m.attention(4, 2, 10, rope), &arch.Experts{
		RouterNorm: m.norm(hidden), Norm: m.norm(hidden), Router: m.linear(4, hidden), Scoring: arch.Softmax, TopK: 2, Normalize: true,
		Gains: m.weight(4, 0, 1, .2),
	}
	same.V, same.VNorm = arch.Linear{}, m.norm(10)
	for range 4 {
		normed.Experts = append(normed.Experts, *m.mlp(arch.GELUTanh, 20))
	}

	d := &arch.Decoder{
		Hidden: hidden, Vocab: vocab, MaxPositions: 512, Embedding: m.weight(vocab, hidden, 0, 1), EmbeddingScale: 1.5, EmbeddingNorm: m.norm(hidden),
		Positions: m.weight(514, hidden, 0, .5), FirstPosition: 2,
		FinalNorm: *m.norm(hidden), Head: m.linear(vocab, hidden), LogitScale: .7, LogitCap: 5, Ropes: []*arch.Rope{rope},
	}
	d.Layers = []arch.Layer{
		attentionLayer: {
			{Norm: centered, Block: first, PostNorm: m.norm(hidden), Scale: .5},
			{Parallel: true, Norm: m.norm(hidden), Block: &arch.Mamba2{
				Heads: 6, HeadDim: 8, Groups: 2, State: 5, Z: m.linear(48, hidden), XBC: m.linear(68, hidden), Dt: m.linear(6, hidden),
				Taps: m.taps(68, 4), ConvBias: m.weight(68, 0, 0, .1), DtBias: m.weight(6, 0, 0, 1), Decay: m.weight(6, 0, -1, .3), D: m.weight(6, 0, 1, .1),
				TimeMin: .01, TimeMax: math.Inf(1), Norm: parted(m.norm(48), 2), Out: m.linear(hidden, 48),
			}},
			{Block: m.mlp(arch.ClampedSwiGLU, 50)},
		},
		latentLayer: {
			{Norm: m.norm(hidden), Block: &arch.LatentAttention{
				Heads: 3, NopeDim: 10, RopeDim: 8, ValueDim: 14, QRank: 20, KVRank: 18,
				QDown: m.linear(20, hidden), QNorm: m.norm(20), QNope: m.linear(30, 20), QRope: m.linear(24, 20),
				KVDown: m.linear(18, hidden), KVNorm: m.norm(18), KRope: m.linear(8, hidden), KNope: m.linear(30, 18), V: m.linear(42, 18),
				O: m.linear(hidden, 42), Rope: rope, Scale: .2,
			}},
			{Norm: m.norm(hidden), Block: grouped},
		},
		deltaLayer: {
			{Norm: m.norm(hidden), Block: &arch.DeltaNet{
				KeyHeads: 2, ValueHeads: 6, KeyDim: 7, ValueDim: 9, QKV: m.linear(82, hidden), Z: m.linear(54, hidden), B: m.linear(6, hidden), A: m.linear(6, hidden),
				Taps: m.taps(82, 3), Decay: m.weight(6, 0, -1, .3), DtBias: m.weight(6, 0, 0, 1), Norm: *m.norm(9), Out: m.linear(hidden, 54),
			}},
			{Norm: m.norm(hidden), Block: ungated},
		},
		convLayer: {
			{Norm: m.norm(hidden), Block: &arch.ShortConv{In: m.linear(3*hidden, hidden), Taps: m.taps(hidden, 3), Bias: m.weight(hidden, 0, 0, .1),
				Out: m.linear(hidden, hidden)}},
			{Norm: m.norm(hidden), Block: xielu},
		},
		chunkLayer: {{Norm: m.norm(hidden), Block: chunked}, {Norm: m.norm(hidden), Block: single}},
		sumLayer: {
			{Norm: m.norm(hidden), Block: same, Gain: m.weight(1, 0, .8, 0)},
			{
				Block: &arch.Sum{Branches: []arch.Branch{
					{Norm: m.norm(hidden), Block: m.mlp(arch.GELUTanh, 30), PostNorm: m.norm(hidden)}, {Block: normed, PostNorm: m.norm(hidden), Scale: .5},
				}},
				PostNorm: m.norm(hidden),
			},
		},
	}
	return d, m.memory
}

// The same bits on every machine, with every set of kernels.
func TestEveryDigest(t *testing.T) {
	d, src := everything()
	h := sha256.New()
	for _, logits := range scoreAll(t, newModel(t, d, src, 0), someWindows()) {
		if err := binary.Write(h, binary.LittleEndian, logits); err != nil {
			t.Fatal(err)
		}
	}
	const want = "c0bca0b841f96b786a947e0b9e746f80d4caa25151c9d68d420f7295d0a5b2ad"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("the logits have changed: sha256 %s, want %s", got, want)
	}
}

// The same bits for all numbers of threads, for groups of windows, for a window alone, and whether weights are kept.
func TestEveryIndependence(t *testing.T) {
	d, src := everything()
	windows := someWindows()
	want := scoreAll(t, newModel(t, d, src, 1), windows)
	for _, threads := range []int{2, 7} {
		m := newModel(t, d, src, threads)
		m.Keep(m.Weights().All)
		for i, got := range scoreAll(t, m, windows) {
			if !slices.Equal(got, want[i]) || !slices.Equal(scoreAll(t, m, windows[i:i+1])[0], want[i]) {
				t.Errorf("%d threads: window %d differs", threads, i)
			}
		}
		if got := scoreAll(t, m, [][]int32{windows[1][:65]})[0]; !slices.Equal(got, want[1][:65*d.Vocab]) {
			t.Errorf("%d threads: earlier logits depend on later tokens", threads)
		}
	}
}

// inMemory counts linear layers whose weights are in memory.
func inMemory(l *Layer) (n int) {
	for _, x := range l.Linears() {
		if x.InMemory() {
			n++
		}
	}
	return n
}

// So do gradients, for all numbers of threads, and those of the states for a window alone.
func TestEveryBackward(t *testing.T) {
	for layer := range layersOfEverything {
		d, src := everything()
		d.Layers = d.Layers[layer : layer+1]
		t.Run(fmt.Sprint("layer ", layer), func(t *testing.T) {
			windows := someWindows()
			_, dh, weights := backward(t, load(t, newModel(t, d, src, 1)), windows)
			if kernel.NonFinite(dh) >= 0 {
				t.Fatal("the gradient is not finite")
			}
			open := load(t, newModel(t, d, src, 2)) // without experts
			var err error
			open.layers[0], err = open.OpenLayer(0)
			check(t, err)
			check(t, open.layers[0].LoadCommon())
			held := inMemory(open.layers[0])
			if _, got, gotWeights := backward(t, open, windows); !slices.Equal(got, dh) || !maps.EqualFunc(gotWeights, weights, slices.Equal) {
				t.Error("other gradients if experts are read one at a time")
			}
			if n := inMemory(open.layers[0]); n != held {
				t.Errorf("%d linear layers in memory, %d before", n, held)
			}
			for _, threads := range []int{2, 7} {
				m := load(t, newModel(t, d, src, threads))
				m.arenas.New = usedArena
				_, got, gotWeights := backward(t, m, windows)
				if !slices.Equal(got, dh) || !maps.EqualFunc(gotWeights, weights, slices.Equal) {
					t.Errorf("%d threads: other gradients", threads)
				}
				first := 0
				for i, w := range windows {
					of := dh[first*d.Hidden : (first+len(w))*d.Hidden]
					if first += len(w); len(w) == 0 {
						continue
					}
					if _, got, _ := backward(t, m, windows[i:i+1]); !slices.Equal(got, of) {
						t.Errorf("%d threads: window %d has another gradient alone", threads, i)
					}
				}
			}
		})
	}
}

// usedArena is memory whose content nothing may depend on.
func usedArena() any {
	x := make([]float32, 1<<20)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	return &arena{kept: [][]float32{x}, size: len(x)}
}

// What a block says that it needs is what it takes: no more, because there is no more, and no less.
func TestCost(t *testing.T) {
	for _, f := range []func() (*arch.Decoder, *memory){everything, conformerLayer} {
		d, src := f()
		testCost(t, d, src)
	}
}

func testCost(t *testing.T, d *arch.Decoder, src *memory) {
	m := newModel(t, d, src, 1)
	var w Windows
	for _, x := range someWindows() {
		w.Lengths = append(w.Lengths, len(x))
	}
	groups, _, longest := w.groups()
	if len(groups) != 1 {
		t.Fatalf("%d groups", len(groups))
	}
	if err := m.reach(longest); err != nil {
		t.Fatal(err)
	}
	n := len(groups[0].positions)
	x := make([]float32, n*d.Hidden)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)))
	}
	for i, layer := range m.layers {
		for j, b := range layer {
			t.Run(fmt.Sprintf("%d.%d %T", i, j, b.block), func(t *testing.T) {
				var used []*buffer
				m.buffers = sync.Pool{New: func() any { used = append(used, new(buffer)); return used[len(used)-1] }}
				c := b.block.cost()
				s := &space{Model: m, group: groups[0], free: make([]float32, n*c.token)}
				before := slices.Clone(x)
				out, err := b.block.run(t.Context(), s, x)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(x, before) {
					t.Error("the input has changed")
				}
				if kernel.NonFinite(out) >= 0 {
					t.Error("the output is not finite")
				}
				left := len(s.free)
				last := b.block
				if s, ok := last.(*sum); ok {
					last = s.parts[len(s.parts)-1].block // the one that needs most
				}
				if e, ok := last.(experts); ok {
					left -= 2 * n * e.TopK // lists of integers
				}
				if left != 0 {
					t.Errorf("%d of %d values are left", left, n*c.token)
				}
				for _, b := range used {
					if held, most := cap(b.floats)+b.keys.Bytes()/4, c.fixed+longest*c.position; held > most {
						t.Errorf("a thread holds %d values instead of %d", held, most)
					}
				}
			})
		}
	}
}

// What is wrong with a block is found before anything runs.
func TestBlockErrors(t *testing.T) {
	block := func(d *arch.Decoder, layer, branch int) arch.Block { return d.Layers[layer][branch].Block }
	attention := func(d *arch.Decoder) *arch.Attention { return block(d, attentionLayer, 0).(*arch.Attention) }
	mamba := func(d *arch.Decoder) *arch.Mamba2 { return block(d, attentionLayer, 1).(*arch.Mamba2) }
	latent := func(d *arch.Decoder) *arch.LatentAttention {
		return block(d, latentLayer, 0).(*arch.LatentAttention)
	}
	experts := func(d *arch.Decoder) *arch.Experts { return block(d, latentLayer, 1).(*arch.Experts) }
	delta := func(d *arch.Decoder) *arch.DeltaNet { return block(d, deltaLayer, 0).(*arch.DeltaNet) }
	conv := func(d *arch.Decoder) *arch.ShortConv { return block(d, convLayer, 0).(*arch.ShortConv) }
	sum := func(d *arch.Decoder) *arch.Sum { return block(d, sumLayer, 1).(*arch.Sum) }
	mlp := func(d *arch.Decoder, layer int) *arch.MLP { return block(d, layer, 1).(*arch.MLP) }
	for _, c := range []struct {
		name   string
		change func(d *arch.Decoder)
		want   error
		text   string
	}{
		{"no block", func(d *arch.Decoder) { d.Layers[0][0].Block = nil }, tensor.ErrUnsupported, "layer 0: blocks of type <nil>"},
		{"parallel to none", func(d *arch.Decoder) { d.Layers[2][0].Parallel = true }, tensor.ErrCorrupt, "layer 2: the first branch"},
		{"branch factor", func(d *arch.Decoder) { d.Layers[2][1].Scale = math.NaN() }, tensor.ErrCorrupt, "multiplied by NaN"},
		{"logit cap", func(d *arch.Decoder) { d.LogitCap = -1 }, tensor.ErrCorrupt, "within -1"},
		{"norm", func(d *arch.Decoder) { d.Layers[2][1].Norm.Gamma.Tensor = "none" }, tensor.ErrCorrupt, `norm of branch 1: the checkpoint has no tensor "none"`},
		{"epsilon", func(d *arch.Decoder) { d.Layers[2][1].Norm.Eps = -1 }, tensor.ErrCorrupt, "epsilon -1"},
		{"bias of RMSNorm", func(d *arch.Decoder) { d.Layers[0][0].Norm.Centered = false }, tensor.ErrUnsupported, "RMSNorm with a bias"},
		{"norm bias", func(d *arch.Decoder) { d.Layers[0][0].Norm.Beta.Tensor = "none" }, tensor.ErrCorrupt, "norm of branch 0 bias"},
		{"embedding norm", func(d *arch.Decoder) { d.EmbeddingNorm.Gamma.Rows = 3 }, tensor.ErrCorrupt, "embedding norm"},
		{"positions", func(d *arch.Decoder) { d.FirstPosition = 1 }, tensor.ErrCorrupt, "positions: the description says 514 x"},
		{"first position", func(d *arch.Decoder) { d.FirstPosition = -1 }, tensor.ErrCorrupt, "512 learned positions from row -1 on"},
		{"post norm", func(d *arch.Decoder) { d.Layers[0][0].PostNorm.Gamma.Tensor = "none" }, tensor.ErrCorrupt, "norm of branch 0"},
		{"head bias", func(d *arch.Decoder) { d.Head.Bias.Tensor = "none" }, tensor.ErrCorrupt, "head bias"},

		{"parts of a query norm", func(d *arch.Decoder) { attention(d).QNorm.Parts = 5 }, tensor.ErrCorrupt, "query norm: 5 parts of 48 elements"},
		{"clip", func(d *arch.Decoder) { attention(d).Clip = -1 }, tensor.ErrCorrupt, "clip -1"},
		{"query norm", func(d *arch.Decoder) { attention(d).QNorm.Gamma.Rows = 24 }, tensor.ErrCorrupt, "query norm"},
		{"sinks", func(d *arch.Decoder) { attention(d).Sinks.Tensor = "none" }, tensor.ErrCorrupt, "sinks"},
		{"slopes", func(d *arch.Decoder) { attention(d).Slopes = []float64{1} }, tensor.ErrCorrupt, "1 slopes of 4 heads"},
		{"slope", func(d *arch.Decoder) { attention(d).Slopes[2] = math.Inf(-1) }, tensor.ErrCorrupt, "-Inf"},
		{"window", func(d *arch.Decoder) { attention(d).Window = -1 }, tensor.ErrCorrupt, "window -1"},
		{"gate", func(d *arch.Decoder) { attention(d).Gate.Weight.Rows = 4 }, tensor.ErrCorrupt, "attention.gate: the description says 4 x 48"},
		{"temperature", func(d *arch.Decoder) { attention(d).Temperature.Floor = 0 }, tensor.ErrCorrupt, "temperature"},
		{"long factors", func(d *arch.Decoder) { d.Ropes[0].Long = d.Ropes[0].Long[1:] }, tensor.ErrCorrupt, "3 rotary frequencies for 8 elements"},
		{"long factor", func(d *arch.Decoder) { d.Ropes[0].Long[1] = math.Inf(1) }, tensor.ErrCorrupt, "rotary frequency 1 is +Inf"},
		{"rotary factor", func(d *arch.Decoder) { d.Ropes[0].Scale = 0 }, tensor.ErrCorrupt, "with factor 0"},

		{"latent rank", func(d *arch.Decoder) { latent(d).KVRank = 0 }, tensor.ErrCorrupt, "a latent of [0]"},
		{"latent scale", func(d *arch.Decoder) { latent(d).Scale = 0 }, tensor.ErrCorrupt, "scale 0"},
		{"latent width", func(d *arch.Decoder) { latent(d).ValueDim = 13 }, tensor.ErrCorrupt, "attention.v"},
		{"latent rotation", func(d *arch.Decoder) { latent(d).RopeDim = 6 }, tensor.ErrCorrupt, "rotation of 8 elements of a head of 6"},
		{"many heads", func(d *arch.Decoder) { latent(d).Heads = math.MaxInt }, tensor.ErrCorrupt, "heads of"},

		{"activation", func(d *arch.Decoder) { mlp(d, deltaLayer).Activation = "relu6" }, tensor.ErrUnsupported, `"relu6"`},
		{"clamp without gate", func(d *arch.Decoder) { mlp(d, deltaLayer).Activation = arch.ClampedSwiGLU }, tensor.ErrCorrupt, "clamped_swiglu"},
		{"xielu", func(d *arch.Decoder) { mlp(d, convLayer).XIELU[1] = arch.Weight{} }, tensor.ErrCorrupt, "xielu"},
		{"inner norm", func(d *arch.Decoder) { mlp(d, deltaLayer).Norm.Gamma.Rows = 1 }, tensor.ErrCorrupt, "mlp inner norm"},

		{"top k", func(d *arch.Decoder) { experts(d).TopK = 9 }, tensor.ErrCorrupt, "9 of 8 experts"},
		{"top k of groups", func(d *arch.Decoder) { experts(d).TopK = 5 }, tensor.ErrCorrupt, "5 of 8 experts out of 2 of 4 groups"},
		{"groups", func(d *arch.Decoder) { experts(d).Groups = 3 }, tensor.ErrCorrupt, "2 of 3 groups"},
		{"best of a group", func(d *arch.Decoder) { experts(d).GroupTop = 3 }, tensor.ErrCorrupt, "by their 3 best"},
		{"scaled inputs", func(d *arch.Decoder) { experts(d).ScaleInput = true }, tensor.ErrCorrupt, "inputs of 2 experts"},
		{"scoring", func(d *arch.Decoder) { experts(d).Scoring = "max" }, tensor.ErrUnsupported, `scoring "max"`},
		{"router", func(d *arch.Decoder) { experts(d).Router.Weight.Rows = 7 }, tensor.ErrCorrupt, "experts.router"},
		{"correction", func(d *arch.Decoder) { experts(d).Correction.Tensor = "none" }, tensor.ErrCorrupt, "experts.correction"},
		{"expert", func(d *arch.Decoder) { experts(d).Experts[5].Up.Weight.Tensor = "none" }, tensor.ErrCorrupt, "layer 1: expert 5: mlp.up"},
		{"shared expert", func(d *arch.Decoder) { experts(d).Shared.Intermediate = 41 }, tensor.ErrCorrupt, "shared expert: mlp.gate"},
		{"shared gate", func(d *arch.Decoder) { experts(d).SharedGate.Weight.Rows = 2 }, tensor.ErrCorrupt, "experts.shared_gate"},

		{"router norm", func(d *arch.Decoder) { experts(d).RouterNorm = &arch.Norm{} }, tensor.ErrCorrupt, "norm of experts"},
		{"gains", func(d *arch.Decoder) { experts(d).Gains = arch.Weight{Tensor: "none", Rows: 8} }, tensor.ErrCorrupt, "experts.gains"},
		{"value norm", func(d *arch.Decoder) { attention(d).VNorm = &arch.Norm{} }, tensor.ErrCorrupt, "value norm"},
		{"gain", func(d *arch.Decoder) { d.Layers[sumLayer][0].Gain.Rows = 2 }, tensor.ErrCorrupt, "gain of branch 0"},
		{"sum of none", func(d *arch.Decoder) { sum(d).Branches = nil }, tensor.ErrCorrupt, "a sum of no branches"},
		{"gain within a sum", func(d *arch.Decoder) { sum(d).Branches[1].Gain.Tensor = "gain" }, tensor.ErrCorrupt, "branch 1 of a sum"},
		{"part of a sum", func(d *arch.Decoder) { sum(d).Branches[0].Norm.Eps = -1 }, tensor.ErrCorrupt, "norm of branch 0: epsilon -1"},

		{"no taps", func(d *arch.Decoder) { conv(d).Taps = nil }, tensor.ErrCorrupt, "without taps"},
		{"tap", func(d *arch.Decoder) { conv(d).Taps[2].Rows = 2 }, tensor.ErrCorrupt, "tap 2"},
		{"convolution bias", func(d *arch.Decoder) { conv(d).Bias.Tensor = "none" }, tensor.ErrCorrupt, "convolution bias"},

		{"key heads", func(d *arch.Decoder) { delta(d).KeyHeads = 4 }, tensor.ErrCorrupt, "6 value heads, 4 key heads"},
		{"delta decay", func(d *arch.Decoder) { delta(d).Decay.Rows = 5 }, tensor.ErrCorrupt, "decay"},
		{"delta norm", func(d *arch.Decoder) { delta(d).Norm.Gamma.Rows = 54 }, tensor.ErrCorrupt, "delta norm"},
		{"delta width", func(d *arch.Decoder) { delta(d).KeyDim = 8 }, tensor.ErrCorrupt, "tap 0: the description says 82 x 0"},

		{"mamba groups", func(d *arch.Decoder) { mamba(d).Groups = 4 }, tensor.ErrCorrupt, "6 heads in 4 groups"},
		{"mamba state", func(d *arch.Decoder) { mamba(d).State = 0 }, tensor.ErrCorrupt, "[2 0]"},
		{"mamba times", func(d *arch.Decoder) { mamba(d).TimeMax = 0 }, tensor.ErrCorrupt, "times from 0.01 to 0"},
		{"mamba norm", func(d *arch.Decoder) { mamba(d).Norm.Parts = 5 }, tensor.ErrCorrupt, "mamba norm: 5 parts of 48 elements"},
		{"mamba factor", func(d *arch.Decoder) { mamba(d).D.Tensor = "none" }, tensor.ErrCorrupt, "direct factor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, src := everything()
			c.change(d)
			m, err := New(d, src, 0)
			if m != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want one with %q", err, c.text)
			}
		})
	}
}

// A frequency that turns too far for a sine is refused when a window is long enough.
func TestFastRotation(t *testing.T) {
	d, src := everything()
	d.Ropes[0].InvFreq[0] = 1e7
	m, err := New(d, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	for tokens, want := range map[int]error{4: nil, 24: tensor.ErrUnsupported} {
		err := m.Layer(0).Forward(t.Context(), make([]float32, tokens*d.Hidden), Equal(1, tokens))
		if !errors.Is(err, want) {
			t.Errorf("%d tokens: %v", tokens, err)
		}
	}
}
