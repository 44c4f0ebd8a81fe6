package forward

import (
	"flag"
	"testing"
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
				p.CrossEntropyGradient(logits, labels[token:token+len(logits)/p.decoder.Vocab])
				return nil
			}, v))
		}
		b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
	})
}
