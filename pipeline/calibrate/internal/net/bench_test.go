package net

import (
	"flag"
	"testing"
	"time"
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
				l.Forward(h, length)
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
		l.Forward(h, length)
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
				p.layers[i].Backward(dh, inputs[i], length, v)
			}
		}
		b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
	})
	b.Run("head", func(b *testing.B) {
		for b.Loop() {
			p.head.Backward(dh, h, func(token int, logits []float32) {
				p.CrossEntropyGradient(logits, labels[token:token+len(logits)/p.decoder.Vocab])
			}, v)
		}
		b.ReportMetric(float64(windows*length*b.N)/b.Elapsed().Seconds(), "tok/s")
	})
}

func BenchmarkSample(b *testing.B) {
	p := benchModel(b)
	s := Sampling{Windows: 96, Length: 512, First: []int32{0}, Temperature: 1, Seed: 1}
	if *checkpoint == "" {
		s.Length = 64
	}
	for b.Loop() {
		start := time.Now()
		if _, err := p.Sample(b.Context(), s, nil); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s")
	}
}
