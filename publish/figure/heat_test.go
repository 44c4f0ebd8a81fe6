package figure

import "testing"

func TestHeat(t *testing.T) {
	h := Heat{Layers: 6, Roles: []string{"q", "experts down", "<head>"}, Bits: [][]float64{{4, 4, 4, 8, 16, 2}, {3.25, 0, 5, 6, 0, 3}, {0, 0, 0, 0, 0, 8}}}
	golden(t, "heat", h.Draw("Bits"))
	wide := Heat{Layers: 80, Roles: []string{"q"}, Bits: [][]float64{make([]float64, 80)}}
	for i := range wide.Bits[0] {
		wide.Bits[0][i] = float64(2 + i%7)
	}
	golden(t, "heat80", wide.Draw("Bits"))
	golden(t, "heat0", Heat{}.Draw("No matrices"))
}

func TestSeries(t *testing.T) {
	values := []Value{{0, 0.01, "layer 0"}, {1, 0.02, "layer <1>"}, {2, 0.035, "layer 2"}}
	highs := []Value{{0, 0.02, "layer 0"}, {1, 0.05, "layer 1"}, {2, 0.05, "layer 2"}}
	golden(t, "bars", Bars("Error", "relative error", "layer", "error", values, 0.05))
	golden(t, "bars_far", Bars("Error", "the limit is far above", "layer", "error", values, 1))
	golden(t, "band", Band("Divergence", "mean and 90 %", "position", "nats", values, highs))
	golden(t, "bars0", Bars("Error", "no values", "layer", "error", nil, 0))
	golden(t, "band1", Band("Divergence", "one value, 0", "position", "nats", []Value{{3, 0, "x"}}, []Value{{3, 0, "x"}}))
}
