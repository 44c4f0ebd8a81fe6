package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Draws come as often as their probabilities say.
func TestDraw(t *testing.T) {
	row := make([]float32, 700)
	for i := range row {
		row[i] = -30
	}
	row[0], row[256], row[699], row[300] = 1, 2, 1.5, -2
	random := rand.NewPCG(1, 2)
	const draws = 20000
	counts := make([]float64, len(row))
	for range draws {
		token, err := next(row, random)
		check(t, err)
		counts[token]++
	}
	var sum float64
	p := make([]float64, len(row))
	for i, x := range row {
		p[i] = math.Exp(float64(x))
		sum += p[i]
	}
	for i := range p {
		want := p[i] / sum * draws
		if math.Abs(counts[i]-want) > 4*math.Sqrt(want)+1 {
			t.Errorf("token %d came %v times, expected %v", i, counts[i], want)
		}
	}
	row[5] = float32(math.NaN())
	if _, err := next(row, rand.NewPCG(1, 2)); err == nil {
		t.Error("a draw from NaN")
	}
}

// However u is rounded, the token that is drawn has a probability above 0.
func TestPickEnds(t *testing.T) {
	row := make([]float32, 600)
	for i := range row {
		row[i] = -2000
	}
	row[3], row[590] = 1, 1
	for u, want := range map[float64]int{0: 3, 0.49: 3, 0.51: 590, 1 - 0x1p-53: 590, 1: 590} {
		if got := pick(row, u); got != want {
			t.Errorf("%v: %d, want %d", u, got, want)
		}
	}
}
