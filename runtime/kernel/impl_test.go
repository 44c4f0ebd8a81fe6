package kernel

import (
	"math"
	"os"
	"testing"
)

// forEachImpl runs f with every tier of SIMD code that this machine has, the generic one included.
func forEachImpl(t *testing.T, f func(t *testing.T)) {
	for _, tier := range tiers {
		t.Run(tier.name, func(t *testing.T) {
			withTier(t, tier.name, func() { f(t) })
		})
	}
}

// withTier runs f with a tier, or skips the test when the machine has less.
func withTier(tb testing.TB, tier string, f func()) {
	tb.Helper()
	s, err := choose(tier, supported())
	if err != nil {
		tb.Skip(err)
	}
	defer func(old switches) { use = old }(use)
	use = s
	f()
}

// TestTier fails when the variable that a test run sets to force a tier had no effect.
func TestTier(t *testing.T) {
	tier, err := Tier()
	if err != nil {
		t.Fatal(err)
	}
	if want := os.Getenv(tierVariable); want != "" && want != tier {
		t.Errorf("%s is %s, but %s runs", tierVariable, want, tier)
	}
	t.Logf("tier %s: %+v", tier, use)
}

func TestChoose(t *testing.T) {
	none, avx2, skylake := switches{}, switches{avx2: true}, switches{avx2: true, avx512: true}
	all := switches{avx2: true, avxvnni: true, avx512: true, vnni: true, bf16: true}
	arm := switches{neon: true, dotprod: true}
	for _, c := range []struct {
		tier       string
		have, want switches
		fails      bool
	}{
		{"", none, none, false},
		{"", skylake, skylake, false},
		{"", all, all, false},
		{"generic", all, none, false},
		{"avx2", all, avx2, false},
		{"avx2", avx2, avx2, false},
		{"avx2", none, none, true},
		{"avx512", skylake, skylake, false},
		{"avx512", all, all, false},
		{"avx512", avx2, avx2, true},
		{"avxvnni", all, switches{avx2: true, avxvnni: true}, false},
		{"avxvnni", skylake, skylake, true},
		{"neon", arm, switches{neon: true}, false},
		{"i8mm", arm, arm, true},
		{"neon", all, all, true},
		{"AVX2", all, all, true},
	} {
		got, err := choose(c.tier, c.have)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("choose(%q, %+v) = %+v, %v", c.tier, c.have, got, err)
		}
	}
}

// extremes are values that SIMD code could treat in another way.
var extremes = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
	0x1p-126, -0x1p-126, 0x1.fffffep-127, 0x1p-75, -0x1p-75, 0x1p64, 65519.996, 65520, 0x1p-14, 0x1.ffcp-15, 0x1p-25,
}

// sameBits wants the same bits, and any NaN for a NaN: which payload a sum of two keeps is open.
func sameBits(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// firstDifference is the index of the first elements that differ, or -1.
func firstDifference(a, b []float32) int {
	for i := range a {
		if !sameBits(a[i], b[i]) {
			return i
		}
	}
	return -1
}
