package kernel

import "testing"

func TestPeakReadBounds(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, n := range []int{1, PeakReadBlock, PeakReadBlock + 1, 9*PeakReadBlock - 1, peakReadCall + PeakReadBlock} {
			PeakRead(guarded(t, make([]byte, n)))
		}
	})
}
