package arch

import (
	"slices"
	"testing"
)

func TestAbsolutePositions(t *testing.T) {
	learned := &Decoder{Positions: Weight{"wpe", 8, 4}}
	if got := learned.AbsolutePositions(); got != "every position has a vector of its own" {
		t.Error(got)
	}
	rope, norm := &Rope{Dim: 4}, &Norm{}
	for want, a := range map[string]Attention{
		"": {Rope: rope, QNorm: norm, KNorm: norm, Window: 16, Slopes: []float64{1}},
		"heads are normalized after the rotation":             {Rope: rope, QNorm: norm, NormAfter: true},
		"attention temperatures grow with the position":       {Rope: rope, Temperature: &Temperature{Floor: 8, Scale: .1}},
		"attention ends at multiples of a position":           {Rope: rope, Chunk: 16},
		"capped attention depends on the length of the cache": {Rope: rope, Cap: 50},
		"rotary factors depend on the length":                 {Rope: &Rope{Dim: 4, Long: []float64{1, 1}}},
	} {
		d := &Decoder{Ropes: []*Rope{a.Rope}, Layers: []Layer{{{Block: &MLP{}}}, {{Block: &Attention{NormAfter: true, QNorm: norm}}, {Block: &a}}}}
		if got := d.AbsolutePositions(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBoundsAndKinds(t *testing.T) {
	long := &Rope{Dim: 4, Original: 32, Long: []float64{1, 1}}
	d := &Decoder{Layers: []Layer{
		{{Block: &Attention{Window: 16, Rope: &Rope{Dim: 4, Original: 8}}}, {Block: &MLP{}}},
		{{Block: &Attention{Window: 16, Rope: &Rope{Dim: 4, Original: 8}, HeadDim: 64}}, {Block: &MLP{}}},
		{{Block: &Attention{Chunk: 64}}, {Block: &MLP{}}},
		{{Block: &LatentAttention{Rope: long}}},
		{{Block: &Attention{Chunk: 64, Slopes: []float64{1}}}, {Block: &MLP{}}},
	}}
	if got, want := d.Bounds(), []int{16, 32, 64}; !slices.Equal(got, want) {
		t.Errorf("bounds %v, want %v", got, want)
	}
	if got, want := d.Kinds(), []int{0, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("kinds %v, want %v", got, want)
	}
}
