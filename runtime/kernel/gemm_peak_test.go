package kernel

import (
	"slices"
	"testing"
)

// BenchmarkPeak is what no product can exceed on this machine.
func BenchmarkPeak(b *testing.B) {
	for _, tier := range tiers {
		b.Run(tier.name, func(b *testing.B) {
			withTier(b, tier.name, func() {
				for _, l := range PeakLoops() {
					b.Run(l.Kind, func(b *testing.B) {
						for b.Loop() {
							l.Run()
						}
						reportFlops(b, l.Operations)
					})
				}
			})
		})
	}
}

// BenchmarkRead bounds BenchmarkPackedRow.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"cold", 320 << 20}, {"hot", 16 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			x := slices.Repeat([]byte{1}, c.size)
			b.SetBytes(int64(c.size))
			for b.Loop() {
				if !PeakRead(x) {
					b.Skip("not on this CPU")
				}
			}
		})
	}
}
