package forward

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llmexport/llmexport/pipeline/arch"
)

// checkpoint lets benchmarks run on any model: go test -bench . -checkpoint DIR.
var checkpoint = flag.String("checkpoint", "", "directory of the checkpoint for benchmarks; by default the model of the repository")

func benchModel(b *testing.B) *parts {
	dir := *checkpoint
	if dir == "" {
		dir = tinyDir
	}
	return load(b, openModel(b, dir, 0))
}

func BenchmarkForward(b *testing.B) {
	p := benchModel(b)
	const windows, length = 8, 512
	tokens := randomTokens(p.decoder.Vocab, windows, length)
	b.Run("layers", func(b *testing.B) {
		for b.Loop() {
			h := p.embed(b, tokens)
			for _, l := range p.layers {
				check(b, l.Forward(b.Context(), h, Equal(windows, length)))
			}
		}
		b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
	})
	b.Run("logits", func(b *testing.B) {
		for b.Loop() {
			p.logits(b, tokens)
		}
		b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
	})
}

func BenchmarkBackward(b *testing.B) {
	p := benchModel(b)
	const windows, length = 8, 512
	h := p.embed(b, randomTokens(p.decoder.Vocab, windows, length))
	var inputs [][]float32
	for _, l := range p.layers {
		inputs = append(inputs, append([]float32{}, h...))
		check(b, l.Forward(b.Context(), h, Equal(windows, length)))
	}
	dh := make([]float32, len(h))
	labels := make([]int32, windows*length)
	v := Visitor{Linear: func(*Linear, []float32, []float32) {}, Norm: func(*Norm, []float64) {}}
	b.Run("layers", func(b *testing.B) {
		for b.Loop() {
			for i := range dh {
				dh[i] = 1
			}
			for i := len(inputs) - 1; i >= 0; i-- {
				check(b, p.layers[i].Backward(b.Context(), dh, inputs[i], Equal(windows, length), v))
			}
		}
		b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
	})
	b.Run("head", func(b *testing.B) {
		for b.Loop() {
			check(b, p.head.Backward(b.Context(), dh, h, func(token int, logits []float32) error {
				p.CrossEntropyGradient(logits, given(labels[token:token+len(logits)/p.decoder.Vocab]))
				return nil
			}, v))
		}
		b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
	})
}

// BenchmarkRecurrences measures layers whose linear layers are small.
func BenchmarkRecurrences(b *testing.B) {
	const hidden, windows, length = 16, 4, 512
	for name, block := range map[string]func(m *inventor) arch.Block{
		"delta": func(m *inventor) arch.Block { // a quarter of the heads of Qwen3.5 4B
			const keys, values, dim = 4, 8, 128
			mixed := (2*keys + values) * dim
			return &arch.DeltaNet{
				KeyHeads: keys, ValueHeads: values, KeyDim: dim, ValueDim: dim,
				QKV: m.linear(mixed, hidden), Z: m.linear(values*dim, hidden), B: m.linear(values, hidden), A: m.linear(values, hidden),
				Taps: m.taps(mixed, 4), Decay: m.weight(values, 0, -1, .3), DtBias: m.weight(values, 0, -2, 1),
				Norm: *m.norm(dim), Out: m.linear(hidden, values*dim),
			}
		},
		"mamba": func(m *inventor) arch.Block { // a sixth of the heads of Granite 4 micro
			const heads, dim, state = 8, 64, 128
			inner, mixed := heads*dim, heads*dim+2*state
			return &arch.Mamba2{
				Heads: heads, HeadDim: dim, Groups: 1, State: state, TimeMax: math.Inf(1),
				Z: m.linear(inner, hidden), XBC: m.linear(mixed, hidden), Dt: m.linear(heads, hidden),
				Taps: m.taps(mixed, 4), ConvBias: m.weight(mixed, 0, 0, .1), DtBias: m.weight(heads, 0, -2, 1),
				Decay: m.weight(heads, 0, -1, .3), D: m.weight(heads, 0, 1, .1), Norm: m.norm(inner), Out: m.linear(hidden, inner),
			}
		},
	} {
		m := &inventor{&memory{data: make(map[string][]byte)}, rand.New(rand.NewPCG(1, 2)), hidden}
		d := &arch.Decoder{
			Hidden: hidden, Vocab: 32, Embedding: m.weight(32, hidden, 0, 1), FinalNorm: *m.norm(hidden), Head: m.linear(32, hidden),
			Layers: []arch.Layer{{{Norm: m.norm(hidden), Block: block(m)}}},
		}
		p := load(b, newModel(b, d, m.memory, 0))
		h, dh := p.embed(b, randomTokens(d.Vocab, windows, length)), make([]float32, windows*length*hidden)
		b.Run(name+" forward", func(b *testing.B) {
			for b.Loop() {
				check(b, p.layers[0].Forward(b.Context(), slices.Clone(h), Equal(windows, length)))
			}
			b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
		b.Run(name+" backward", func(b *testing.B) {
			for b.Loop() {
				for i := range dh {
					dh[i] = 1
				}
				check(b, p.layers[0].Backward(b.Context(), dh, h, Equal(windows, length), Visitor{}))
			}
			b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
}
