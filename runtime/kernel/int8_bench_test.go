package kernel

import (
	"fmt"
	"testing"
	"time"
)

// stored packs codes of 4 bits as packages do.
func stored(codes []uint8) []byte {
	b := make([]byte, (len(codes)+1)/2)
	for i, c := range codes {
		b[i/2] |= c << (4 * (1 - i&1))
	}
	return b
}

// BenchmarkInt8Matrix reports operations, two a product, and the bytes of packed weights that pass a second. "cold" goes
// through matrices that no cache holds together.
func BenchmarkInt8Matrix(b *testing.B) {
	for _, tier := range tiers {
		for _, c := range []struct {
			rows, cols, block, bits, tokens int
			cold                            bool
		}{
			{1024, 1024, 64, 4, 256, false},
			{1024, 1024, 128, 4, 256, false},
			{1024, 1024, 32, 4, 256, false},
			{1024, 1024, 1024, 4, 256, false},
			{1024, 1024, 64, 8, 256, false},
			{1024, 1024, 1024, 8, 256, false},
			{1536, 576, 64, 4, 512, false},
			{1536, 576, 64, 8, 512, false},
			{576, 1536, 64, 4, 512, false},
			{1024, 1024, 64, 4, 1, false},
			{1024, 1024, 64, 8, 1, false},
			{4096, 4096, 64, 4, 1, false},
			{4096, 4096, 64, 4, 1, true},
			{4096, 4096, 64, 8, 1, true},
			{1024, 1024, 64, 4, 2, false},
			{1024, 1024, 64, 4, 4, false},
			{1024, 1024, 64, 4, 7, false},
		} {
			name := fmt.Sprintf("%s/%dx%d/w%d/block=%d/tokens=%d", tier.name, c.rows, c.cols, c.bits, c.block, c.tokens)
			if c.cold {
				name += "/cold"
			}
			b.Run(name, func(b *testing.B) {
				withTier(b, tier.name, func() { benchmarkInt8(b, c.rows, c.cols, c.block, c.bits, c.tokens, c.cold) })
			})
		}
	}
}

func benchmarkInt8(b *testing.B, rows, cols, block, bits, tokens int, cold bool) {
	w := dynquantWeights(rows, cols, block, bits)
	matrices := make([]*Int8Matrix, 1)
	if cold {
		matrices = make([]*Int8Matrix, 16)
	}
	for i := range matrices {
		m, err := NewInt8Matrix(w, 0)
		if err != nil {
			b.Fatal(err)
		}
		matrices[i] = m
	}
	var q QuantizedRows
	quantizeFor(&q, dynquantRows(tokens, cols), tokens, cols, block, DynToken)
	dst := make([]float32, tokens*rows)
	i := 0
	each := bestOf(b, func() {
		matrices[i%len(matrices)].Mul(dst, &q, 0, rows)
		i++
	})
	ops := 2 * float64(tokens*rows) * float64(cols) / each
	b.ReportMetric(ops, "GOPS")
	b.ReportMetric(float64(matrices[0].packedBytes())/each, "GB/s")
	b.ReportMetric(8*float64(matrices[0].packedBytes())/float64(rows*cols), "bits/weight")
	if most := int8Peak(); most > 0 {
		b.ReportMetric(100*ops/most, "%peak")
	}
}

// bestOf is the time of the fastest call in nanoseconds: other programs run on the machine too.
func bestOf(b *testing.B, f func()) float64 {
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	return float64(best.Nanoseconds())
}

// int8Peak is what the multipliers do in GOPS, with the instructions in use; 0 if that is not known.
func int8Peak() (most float64) {
	for _, l := range PeakLoops() {
		for i := 0; l.Kind == "int8" && i < 100; i++ {
			start := time.Now()
			l.Run()
			most = max(most, l.Operations/float64(time.Since(start).Nanoseconds()))
		}
	}
	return most
}

func BenchmarkQuantize(b *testing.B) {
	for _, tier := range tiers {
		for _, option := range []DynOption{DynToken, DynBlock} {
			for _, rows := range []int{512, 1} {
				b.Run(fmt.Sprintf("%s/option=%d/%dx1536", tier.name, option, rows), func(b *testing.B) {
					withTier(b, tier.name, func() {
						x := dynquantRows(rows, 1536)
						var q QuantizedRows
						best := bestOf(b, func() { quantizeFor(&q, x, rows, 1536, 64, option) })
						b.ReportMetric(float64(4*len(x))/best, "GB/s")
					})
				})
			}
		}
	}
}

// BenchmarkNewInt8Matrix reports the bytes of stored codes that pass a second, and the time that a model of 135 million
// weights takes.
func BenchmarkNewInt8Matrix(b *testing.B) {
	const rows, cols = 1536, 576
	for _, bits := range []int{4, 8} {
		w := dynquantWeights(rows, cols, 64, bits)
		if bits == 4 {
			w.Codes, w.Nibbles = nil, stored(w.Codes)
		}
		b.Run(fmt.Sprintf("w%d", bits), func(b *testing.B) {
			best := bestOf(b, func() {
				if _, err := NewInt8Matrix(w, 1); err != nil {
					b.Fatal(err)
				}
			})
			b.ReportMetric(float64(len(w.Codes)+len(w.Nibbles))/best, "GB/s")
			b.ReportMetric(best/(rows*cols)*135, "ms/135M")
		})
	}
}
