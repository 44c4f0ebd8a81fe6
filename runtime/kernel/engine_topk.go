package kernel

// EngineTopK writes the indices of the len(dst) largest elements of row to dst, the largest first, in the engine's order of
// equal elements. order is scratch memory, which is returned for the next call. It panics if dst is longer than row.
//
// If len(dst) is one, equal elements are in ascending order of index; otherwise in the order of std::partial_sort of libstdc++:
// a heap of the first elements, into which every larger one is sifted, and a heap sort at the end.
//
// Emulates CPUTopKV2.cpp and MNNVectorTop1Float (CommonOptFunction.cpp).
func EngineTopK(dst []int32, row []float32, order []int32) []int32 {
	if len(dst) > len(row) {
		panic("internal error: kernel.EngineTopK: more elements than the row has")
	}
	if len(dst) == 1 {
		best := 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		dst[0] = int32(best)
		return order
	}
	order = order[:0]
	for i := range row {
		order = append(order, int32(i))
	}
	s := partialSort{row: row, order: order}
	k := len(dst)
	for parent := k/2 - 1; parent >= 0; parent-- {
		s.adjust(parent, k, order[parent])
	}
	for i := k; i < len(order); i++ {
		if s.less(order[i], order[0]) {
			s.pop(k, i)
		}
	}
	for last := k - 1; last > 0; last-- {
		s.pop(last, last)
	}
	copy(dst, order)
	return order
}

// partialSort is a heap of indices whose first one comes last in the order of values.
type partialSort struct {
	row   []float32
	order []int32
}

// less reports whether i comes before j.
func (s *partialSort) less(i, j int32) bool { return s.row[i] > s.row[j] }

// pop swaps the first of a heap of n with the index at place at, which enters the heap.
func (s *partialSort) pop(n, at int) {
	v := s.order[at]
	s.order[at] = s.order[0]
	s.adjust(0, n, v)
}

// adjust fills the hole of a heap of n with v: the hole sinks to the bottom, and v rises from there.
func (s *partialSort) adjust(hole, n int, v int32) {
	top, child := hole, hole
	for child < (n-1)/2 {
		child = 2 * (child + 1)
		if s.less(s.order[child], s.order[child-1]) {
			child--
		}
		s.order[hole] = s.order[child]
		hole = child
	}
	if n%2 == 0 && child == (n-2)/2 {
		child = 2*child + 1
		s.order[hole] = s.order[child]
		hole = child
	}
	for hole > top {
		parent := (hole - 1) / 2
		if !s.less(s.order[parent], v) {
			break
		}
		s.order[hole] = s.order[parent]
		hole = parent
	}
	s.order[hole] = v
}
