package kernel

import "testing"

// However u is rounded, the token that is drawn has a probability above 0.
func TestPickEnds(t *testing.T) {
	row := make([]float32, 600)
	for i := range row {
		row[i] = -2000
	}
	row[3], row[590] = 1, 1
	for u, want := range map[float64]int{0: 3, 0.49: 3, 0.51: 590, 1 - 0x1p-53: 590, 1: 590} {
		if got := Pick(row, u); got != want {
			t.Errorf("%v: %d, want %d", u, got, want)
		}
	}
}
