package kernel

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A call of assembly cannot be interrupted, and the collector waits for it.
const longestPeakCall = 200 * time.Microsecond

func TestPeakLoops(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		loops := PeakLoops()
		if use.avx2 && len(loops) < 2 || !use.avx2 && len(loops) != 0 {
			t.Fatalf("%d loops with %+v", len(loops), use)
		}
		for _, l := range loops {
			best := time.Hour
			for range 100 {
				start := time.Now()
				l.Run()
				best = min(best, time.Since(start))
			}
			if best <= 0 || best > longestPeakCall {
				t.Errorf("%s: a call takes %v", l.Instruction, best)
			}
			t.Logf("%s %s: %.0f GOPS", l.Kind, l.Instruction, l.Operations/float64(best.Nanoseconds()))
		}
	})
}

func TestPeakRead(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, n := range []int{0, 1, PeakReadBlock - 1, PeakReadBlock, 2*PeakReadBlock + 3, peakReadCall + PeakReadBlock} {
			if got := PeakRead(make([]byte, n)); got != use.avx2 {
				t.Errorf("%d bytes: %v with %+v", n, got, use)
			}
		}
	})
}

func TestFeatures(t *testing.T) {
	for want, s := range map[string]switches{
		"":                       {},
		"AVX2 FMA F16C":          {avx2: true},
		"AVX2 FMA F16C AVX-512":  {avx2: true, avx512: true},
		"AVX2 FMA F16C AVX-VNNI": {avx2: true, avxvnni: true},
		"NEON DOTPROD I8MM":      {neon: true, dotprod: true, i8mm: true},
	} {
		if got := strings.Join(s.names(), " "); got != want {
			t.Errorf("%+v is %q, want %q", s, got, want)
		}
	}
	if have := Features(); supported().avx2 && !slices.Contains(have, "AVX2") {
		t.Errorf("features %q", have)
	}
}
