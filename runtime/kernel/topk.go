package kernel

import (
	"math"
	"slices"
)

// TopK returns the indices of the k largest elements of row, the largest first, and the smaller index first where elements
// are equal. NaNs are ignored, so there may be fewer than k. The result uses dst if that has room. It panics if row has more
// elements than an int32 can count.
func TopK(dst []int32, row []float32, k int) []int32 {
	if len(row) > math.MaxInt32 {
		panic("internal error: kernel.TopK: row too long")
	}
	k = max(min(k, len(row)), 0)
	h := topHeap{row: row, index: slices.Grow(dst[:0], k)}
	at := 0
	for ; at < len(row) && len(h.index) < k; at++ {
		if v := row[at]; v == v {
			h.index = append(h.index, int32(at))
		}
	}
	for i := len(h.index)/2 - 1; i >= 0; i-- {
		h.sink(i, len(h.index))
	}
	for at < len(row) && k > 0 {
		// An element that equals the least of those kept comes after it.
		worst := row[h.index[0]]
		at += atLeast(row[at:], math.Nextafter32(worst, float32(math.Inf(1))))
		if at < len(row) && row[at] > worst {
			h.index[0] = int32(at)
			h.sink(0, k)
		}
		at++
	}
	for n := len(h.index) - 1; n > 0; n-- {
		h.index[0], h.index[n] = h.index[n], h.index[0]
		h.sink(0, n)
	}
	return h.index
}

// topHeap keeps the index that comes last at the top.
type topHeap struct {
	row   []float32
	index []int32
}

// after reports whether index i comes after index j.
func (h *topHeap) after(i, j int32) bool {
	if a, b := h.row[i], h.row[j]; a != b {
		return a < b
	}
	return i > j
}

// sink restores the order of the first n, from position i down.
func (h *topHeap) sink(i, n int) {
	for {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && h.after(h.index[c+1], h.index[c]) {
			c++
		}
		if !h.after(h.index[c], h.index[i]) {
			return
		}
		h.index[i], h.index[c] = h.index[c], h.index[i]
		i = c
	}
}
