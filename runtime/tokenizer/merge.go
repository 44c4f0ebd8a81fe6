package tokenizer

import (
	"math"
	"sync"
)

// pair is two neighbouring token ids, the left one in the upper half.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint32(left))<<32 | pair(uint32(right)) }

// merge is what becomes of a pair: the lowest rank is merged first.
type merge struct{ rank, id int32 }

// merger applies the merges of a BPE model to a word.
type merger struct {
	merges map[pair]merge
	// sameID accepts a merge found earlier for a pair that has changed since, when the new pair
	// gives the same token. The library `tokenizers` does so; the engine of MNN does not.
	sameID bool
}

// candidate is a merge that was possible at position pos when it was found.
type candidate struct{ rank, pos, id int32 }

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

type symbol struct{ id, prev, next int32 }

// workspace holds what one call of a merger needs; symbols are set by the caller.
type workspace struct {
	symbols []symbol
	heap    []candidate
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// dead marks a symbol that was merged into its left neighbour.
const dead = -1

func (w *workspace) reset() { w.symbols = w.symbols[:0] }

func (w *workspace) push(id int32) {
	n := int32(len(w.symbols))
	w.symbols = append(w.symbols, symbol{id: id, prev: n - 1, next: n + 1})
}

// apply merges the symbols of w and appends the ids that are left. Time is n log n in the symbols.
func (m *merger) apply(w *workspace, dst []int32) []int32 {
	sym := w.symbols
	n := int32(len(sym))
	w.heap = w.heap[:0]
	for i := int32(0); i+1 < n; i++ {
		if found, ok := m.merges[pairOf(sym[i].id, sym[i+1].id)]; ok {
			w.heap = append(w.heap, candidate{found.rank, i, found.id})
		}
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		siftDown(w.heap, i)
	}
	for len(w.heap) > 0 {
		top := w.heap[0]
		last := len(w.heap) - 1
		w.heap[0] = w.heap[last]
		w.heap = w.heap[:last]
		siftDown(w.heap, 0)

		left := &sym[top.pos]
		if left.id == dead || left.next >= n {
			continue
		}
		right := &sym[left.next]
		now, ok := m.merges[pairOf(left.id, right.id)]
		if !ok || now.id != top.id || !m.sameID && now.rank != top.rank {
			continue
		}
		left.id = top.id
		right.id = dead
		left.next = right.next
		if left.next < n {
			sym[left.next].prev = top.pos
			m.offer(w, top.pos, left.next)
		}
		if left.prev >= 0 {
			m.offer(w, left.prev, top.pos)
		}
	}
	for i := int32(0); i < n; i = sym[i].next {
		dst = append(dst, sym[i].id)
	}
	return dst
}

// offer adds the merge of two neighbours to the heap, if there is one.
func (m *merger) offer(w *workspace, left, right int32) {
	found, ok := m.merges[pairOf(w.symbols[left].id, w.symbols[right].id)]
	if !ok {
		return
	}
	w.heap = append(w.heap, candidate{found.rank, left, found.id})
	for i := len(w.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !w.heap[i].before(w.heap[up]) {
			break
		}
		w.heap[i], w.heap[up] = w.heap[up], w.heap[i]
		i = up
	}
}

func siftDown(h []candidate, i int) {
	for {
		low := 2*i + 1
		if low >= len(h) {
			return
		}
		if low+1 < len(h) && h[low+1].before(h[low]) {
			low++
		}
		if !h[low].before(h[i]) {
			return
		}
		h[i], h[low] = h[low], h[i]
		i = low
	}
}

// maxMerges keeps ranks within an int32; the engine of MNN compares them with a billion.
const maxMerges = math.MaxInt32 / 4
