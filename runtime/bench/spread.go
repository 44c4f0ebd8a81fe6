package bench

import (
	"math"
	"slices"
)

// Spread summarizes repeated measurements.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// StdDev is the standard deviation of the sample, 0 for a single one.
	StdDev float64 `json:"std_dev"`
	// Samples in the order of measurement.
	Samples []float64 `json:"samples"`
}

// SpreadOf summarizes samples, of which there is at least one.
func SpreadOf(samples []float64) Spread {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	s := Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], Samples: samples}
	if n == 1 {
		return s
	}
	var mean, squares float64
	for _, x := range samples {
		mean += x / float64(n)
	}
	for _, x := range samples {
		squares += (x - mean) * (x - mean)
	}
	s.StdDev = math.Sqrt(squares / float64(n-1))
	return s
}
