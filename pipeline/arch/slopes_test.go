package arch

import (
	"math"
	"testing"
)

func TestAlibi(t *testing.T) {
	for _, tt := range []struct {
		heads int
		want  func(h int) float64 // the exponent of 2
	}{
		{1, func(int) float64 { return -8 }},
		{4, func(h int) float64 { return -2 * float64(h+1) }},
		{16, func(h int) float64 { return -float64(h+1) / 2 }},
		{40, func(h int) float64 {
			if h < 32 {
				return -float64(h+1) / 4
			}
			return -float64(2*(h-32)+1) / 8
		}},
		{112, func(h int) float64 {
			if h < 64 {
				return -float64(h+1) / 8
			}
			return -float64(2*(h-64)+1) / 16
		}},
	} {
		got := alibi(tt.heads)
		if len(got) != tt.heads {
			t.Fatalf("%d slopes for %d heads", len(got), tt.heads)
		}
		for h, s := range got {
			// Half of the last bit of a float32, and what math.Exp2 lacks.
			if want := math.Exp2(tt.want(h)); math.Abs(s-want) > want*0x1p-24*1.001 || float64(float32(s)) != s {
				t.Errorf("head %d of %d: %v, want %v", h, tt.heads, s, want)
			}
		}
	}
}
