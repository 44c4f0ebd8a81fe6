package forward

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// withLatent replaces attention by latent attention.
func withLatent(change func(p string, a *arch.LatentAttention, m *maker)) func(*arch.Decoder, *maker) {
	const heads, nope, rope, value, rank = 3, 6, randomDim, 5, 9
	return func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, attention, _ *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			a := &arch.LatentAttention{
				Heads: heads, NopeDim: nope, RopeDim: rope, ValueDim: value, KVRank: rank, KVNorm: m.norm(p+"kv norm", rank),
				QNope: m.linear(p+"q nope", heads*nope, d.Hidden), QRope: m.linear(p+"q rope", heads*rope, d.Hidden),
				KVDown: m.linear(p+"kv down", rank, d.Hidden), KRope: m.linear(p+"k rope", rope, d.Hidden),
				KNope: m.linear(p+"k nope", heads*nope, rank), V: m.linear(p+"latent v", heads*value, rank),
				O: m.linear(p+"latent o", d.Hidden, heads*value), Rope: d.Ropes[0], Scale: 0.3,
			}
			change(p, a, m)
			attention.Block = a
		})
	}
}

// expert makes an MLP of a mixture.
func (m *maker) expert(name string, inner int) arch.MLP {
	return arch.MLP{
		Intermediate: inner, Activation: arch.SiLU, Gate: m.linear(name+" gate", inner, randomHidden),
		Up: m.linear(name+" up", inner, randomHidden), Down: m.linear(name+" down", randomHidden, inner),
	}
}

// withExperts replaces MLPs by mixtures of experts of unlike sizes, two of which are chosen.
func withExperts(count int, change func(p string, e *arch.Experts, m *maker)) func(*arch.Decoder, *maker) {
	return func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, _, mlp *arch.Branch, _ *arch.Attention, _ *arch.MLP) {
			e := &arch.Experts{Router: m.linear(p+"router", count, d.Hidden), TopK: 2, Scoring: arch.Softmax}
			for j := range count {
				e.Experts = append(e.Experts, m.expert(fmt.Sprint(p, "expert ", j), 10+j))
			}
			change(p, e, m)
			mlp.Block = e
		})
	}
}

// summed replaces MLPs by the sum of an MLP and a mixture.
func summed(d *arch.Decoder, m *maker) {
	withExperts(4, func(p string, e *arch.Experts, m *maker) {
		e.RouterNorm, e.Norm = m.norm(p+"router norm", d.Hidden), m.norm(p+"norm of experts", d.Hidden)
		e.Gains = m.vector(p+"gains", 4, 1)
	})(d, m)
	for i := range d.Layers {
		b, p := &d.Layers[i][1], fmt.Sprint(i, ".")
		plain := m.expert(p+"plain", 20)
		b.Block = &arch.Sum{Branches: []arch.Branch{
			{Norm: m.norm(p+"before plain", d.Hidden), Block: &plain, PostNorm: m.norm(p+"after plain", d.Hidden), Scale: 0.8},
			{Block: b.Block, PostNorm: m.norm(p+"after experts", d.Hidden)},
		}}
		b.PostNorm, b.Gain = m.norm(p+"after sum", d.Hidden), m.vector(p+"gain of the sum", 1, 0.9)
	}
}

// blocks are forms of blocks other than attention and MLPs.
var blocks = []form{
	{"layers of a tower", func(d *arch.Decoder, m *maker) {
		pairs(d, func(p string, attention, mlp *arch.Branch, a *arch.Attention, x *arch.MLP) {
			a.Bidirectional, x.Activation, x.Gate = true, arch.QuickGELU, arch.Linear{}
			attention.Factors, mlp.Factors = m.vector(p+"factors of attention", d.Hidden, 0.7), m.vector(p+"factors of the MLP", d.Hidden, 0.6)
		})
	}},
	{"latent attention", withLatent(func(string, *arch.LatentAttention, *maker) {})},
	{"latent attention of a low rank", withLatent(func(p string, a *arch.LatentAttention, m *maker) {
		const rank = 11
		a.QRank, a.QDown, a.QNorm = rank, m.linear(p+"q down", rank, randomHidden), m.norm(p+"q norm of rank", rank)
		a.QNope, a.QRope = m.linear(p+"q nope of rank", a.QNope.Weight.Rows, rank), m.linear(p+"q rope of rank", a.QRope.Weight.Rows, rank)
	})},
	{"latent attention without norms", withLatent(func(p string, a *arch.LatentAttention, m *maker) {
		const rank = 11
		a.QRank, a.QDown, a.KVNorm, a.Rope = rank, m.linear(p+"q down", rank, randomHidden), nil, nil
		a.QNope, a.QRope = m.linear(p+"q nope of rank", a.QNope.Weight.Rows, rank), m.linear(p+"q rope of rank", a.QRope.Weight.Rows, rank)
	})},
	{"softmax", withExperts(5, func(string, *arch.Experts, *maker) {})},
	{"softmax, normalized, shared", withExperts(5, func(p string, e *arch.Experts, m *maker) {
		shared := m.expert(p+"shared", 20)
		e.Normalize, e.Scale, e.Shared = true, 1.6, &shared
	})},
	{"softmax, shared with a gate, norms within", withExperts(5, func(p string, e *arch.Experts, m *maker) {
		shared := m.expert(p+"shared", 20)
		e.Shared, e.SharedGate = &shared, m.linear(p+"gate of shared", 1, randomHidden)
		shared.Norm = m.norm(p+"shared norm", 20)
		for j := range e.Experts {
			e.Experts[j].Norm = m.norm(fmt.Sprint(p, "norm within ", j), e.Experts[j].Intermediate)
		}
	})},
	{"sigmoid, corrected, in groups", withExperts(6, func(p string, e *arch.Experts, m *maker) {
		e.Scoring, e.Correction, e.Groups, e.TopGroups, e.GroupTop = arch.Sigmoid, m.vector(p+"correction", 6, 0), 3, 2, 2
		e.Normalize, e.Epsilon, e.Scale = true, 0.1, 2.5
	})},
	{"sigmoid of one, before the expert", withExperts(4, func(_ string, e *arch.Experts, _ *maker) {
		e.Scoring, e.TopK, e.ScaleInput = arch.Sigmoid, 1, true
	})},
	{"softmax of the largest, with biases", func(d *arch.Decoder, m *maker) {
		m.biases = true
		withExperts(5, func(_ string, e *arch.Experts, _ *maker) { e.Scoring, e.TopK = arch.TopKSoftmax, 3 })(d, m)
	}},
	{"softmax of the largest, normalized", withExperts(5, func(_ string, e *arch.Experts, _ *maker) {
		e.Scoring, e.Normalize, e.Scale = arch.TopKSoftmax, true, 0.7
	})},
	{"sparse mixer", withExperts(5, func(_ string, e *arch.Experts, _ *maker) { e.Scoring, e.Near = arch.SparseMixer, 0.6 })},
	{"norms of the router and of the experts", withExperts(4, func(p string, e *arch.Experts, m *maker) {
		e.RouterNorm, e.Norm = m.norm(p+"router norm", randomHidden), m.norm(p+"norm of experts", randomHidden)
		e.Normalize, e.Gains = true, m.vector(p+"gains", 4, 1)
	})},
	{"a norm of the experts", withExperts(4, func(p string, e *arch.Experts, m *maker) {
		e.Norm = m.norm(p+"norm of experts", randomHidden)
	})},
	{"a sum", summed},
	{"latent attention and experts, parallel", func(d *arch.Decoder, m *maker) {
		withLatent(func(string, *arch.LatentAttention, *maker) {})(d, m)
		var experts []arch.Block
		plain, _ := makeModel(features{heads: 4, kvHeads: 2})
		withExperts(4, func(string, *arch.Experts, *maker) {})(plain, m)
		for i := range plain.Layers {
			experts = append(experts, plain.Layers[i][1].Block)
			d.Layers[i][1].Block, d.Layers[i][1].Parallel = experts[i], true
			d.Layers[i][1].Scale = 0.7
		}
	}},
}

// choices runs the layers over h, in place, and returns the experts that they choose.
func (p *parts) choices(t testing.TB, h []float32, w Windows) (all []int32) {
	t.Helper()
	for _, l := range p.layers {
		check(t, l.each(t.Context(), h, w, func(s *space, h []float32) error {
			s.observe = func(of *arch.Linear, x []float32) error {
				if e := mixtureOf(l.branches, of); e != nil {
					all = append(all, e.choices(t, s, x)...)
				}
				return nil
			}
			return s.forward(t.Context(), l.branches, h)
		}))
	}
	return all
}

// mixed reports whether a decoder has experts.
func mixed(d *arch.Decoder) bool {
	found := false
	d.Linears(func(slot string, _ *arch.Linear) { found = found || strings.HasSuffix(slot, "experts.router") })
	return found
}

// mixtureOf is the mixture among some branches that has a router.
func mixtureOf(branches []branch, router *arch.Linear) *experts {
	for _, b := range branches {
		switch x := b.block.(type) {
		case experts:
			if &x.Router == router {
				return &x
			}
		case *sum:
			if e := mixtureOf(x.parts, router); e != nil {
				return e
			}
		}
	}
	return nil
}

// choices are the experts that a router chooses for x, and those that the weight of a choice is a share of.
func (e experts) choices(t testing.TB, s *space, x []float32) (all []int32) {
	t.Helper()
	count := len(e.Experts)
	scores := make([]float32, s.tokens()*count)
	s.held.linear(&e.Router).apply(scores, x)
	correction, err := s.vectors(e.Correction)
	check(t, err)
	for ; len(scores) > 0; scores = scores[count:] {
		row, chosen := slices.Clone(scores[:count]), make([]int32, e.TopK)
		e.route(row, correction[0], chosen, make([]float32, e.TopK), new(buffer))
		for i, c := range chosen {
			all = append(all, c)
			for j := range int32(count) {
				if e.Scoring == arch.SparseMixer && e.mixes(float64(scores[c]), float64(scores[j]), j, chosen[:i]) {
					all = append(all, j)
				}
			}
		}
	}
	return all
}

// stableTokens are windows for which a model chooses the same experts after small changes of the states.
func stableTokens(t testing.TB, p *parts, windows, length int) [][]int32 {
	t.Helper()
	if !mixed(p.decoder) {
		return randomTokens(p.decoder.Vocab, windows, length)
	}
	r := rand.New(rand.NewPCG(8, 9))
	all := make([][]int32, windows)
	for i := range all {
		for len(all[i]) < length { // a token changes nothing before it
			all[i] = append(all[i], 0)
			draw := func(deviation float64) bool {
				for range 40 {
					all[i][len(all[i])-1] = int32(r.IntN(p.decoder.Vocab))
					if p.stable(t, all[i], deviation) {
						return true
					}
				}
				return false
			}
			if !draw(0.15) && !draw(0.1) && !draw(0.05) && !draw(0.02) {
				t.Fatal("every choice is near another")
			}
		}
	}
	return all
}

// stable reports whether random changes of the states, relative to their size, leave the choice of experts in a window as it is. Those of a token are
// the same in every longer window.
func (p *parts) stable(t testing.TB, window []int32, deviation float64) bool {
	t.Helper()
	const changes = 4
	of, width := Equal(1, len(window)), p.decoder.Hidden
	h := p.embed(t, [][]int32{window})
	want := p.choices(t, slices.Clone(h), of)
	for seed := range uint64(changes) {
		r := rand.New(rand.NewPCG(8, seed))
		changed := slices.Clone(h)
		for row := range slices.Chunk(changed, width) {
			size := math.Sqrt(dotProduct(row, row) / float64(width))
			for i := range row {
				row[i] += float32(deviation * size * r.NormFloat64())
			}
		}
		if !slices.Equal(p.choices(t, changed, of), want) {
			return false
		}
	}
	return true
}
