package verify

import (
	"math"
	"slices"

	"github.com/llmexport/llmexport/runtime/kernel"
)

// row holds a row of logits with the values that divergences need.
type row struct {
	logits []float32
	// norm is log(sum(exp(logits))).
	norm float64
}

func newRow(logits []float32) row { return row{logits, kernel.LogSumExp(logits)} }

// nll returns the negative log-likelihood of a token.
func (r row) nll(token int32) float64 { return r.norm - float64(r.logits[token]) }

// top returns the most likely token, the smallest of several.
func (r row) top() int { return kernel.ArgMax(r.logits) }

// kl returns KL(r to q) in nats: sum over tokens of p*(log p - log q), with p the probabilities of r. Rounding can
// leave a tiny negative number where the true value is not below 0.
func (r row) kl(q row) float64 { return max(kernel.KL(r.logits, q.logits, r.norm, q.norm), 0) }

// finite reports whether all logits are numbers; LogSumExp of a row with a NaN or +Inf is not finite.
func (r row) finite() bool { return !math.IsNaN(r.norm) && !math.IsInf(r.norm, 0) }

// Sample collects one number per scored position, grouped in windows.
type Sample struct {
	values  []float64
	windows []int // start of each window in values
}

func (s *Sample) begin()        { s.windows = append(s.windows, len(s.values)) }
func (s *Sample) add(v float64) { s.values = append(s.values, v) }

// Mean returns the mean over all positions and its standard error. Positions of a window depend on each
// other, so the error comes from the spread of window means; with fewer than four windows it is that of
// independent positions.
func (s *Sample) Mean() (mean, stderr float64) {
	n := len(s.values)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	mean = average(s.values)
	groups := s.values
	if len(s.windows) >= 4 {
		groups = nil
		for i, lo := range s.windows {
			hi := n
			if i+1 < len(s.windows) {
				hi = s.windows[i+1]
			}
			if lo < hi { // a window may have no finite position
				groups = append(groups, average(s.values[lo:hi]))
			}
		}
	}
	if len(groups) < 2 {
		return mean, 0
	}
	m, v := average(groups), 0.0
	for _, g := range groups {
		v += float64((g - m) * (g - m))
	}
	return mean, math.Sqrt(v / float64(len(groups)-1) / float64(len(groups)))
}

// Difference returns the mean of a minus b over the same positions, and its standard error, as [Sample.Mean] does. Both are NaN if
// the samples have different positions.
func Difference(a, b *Sample) (mean, stderr float64) {
	if len(a.values) != len(b.values) || !slices.Equal(a.windows, b.windows) {
		return math.NaN(), math.NaN()
	}
	d := Sample{windows: a.windows}
	for i, v := range a.values {
		d.add(v - b.values[i])
	}
	return d.Mean()
}

func average(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// Quantile returns the smallest value that at least the share q of all positions does not exceed.
func (s *Sample) Quantile(q float64) float64 {
	if len(s.values) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(s.values)
	slices.Sort(sorted)
	return sorted[max(0, min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1))]
}

// Len returns the number of positions.
func (s *Sample) Len() int { return len(s.values) }
