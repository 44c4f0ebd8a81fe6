// Package merge applies the merges of byte-pair encoding (BPE).
package merge

import (
	"math"
	"sync"
)

// MaxMerges bounds the number of merges. It keeps ranks within an int32; the engine of MNN compares them with a billion.
const MaxMerges = math.MaxInt32 / 4

// Pair is two neighbouring token ids, the left one in the upper half.
type Pair uint64

// PairOf makes a pair of two ids.
func PairOf(left, right int32) Pair { return Pair(uint32(left))<<32 | Pair(uint32(right)) }

// Left is the left id.
func (p Pair) Left() int32 { return int32(p >> 32) }

// Right is the right id.
func (p Pair) Right() int32 { return int32(uint32(p)) }

// Rule is what becomes of a pair: the lowest rank is merged first.
type Rule struct{ Rank, ID int32 }

// Merger applies the merges of a BPE model to a word.
type Merger struct {
	Merges map[Pair]Rule
	// SameID accepts a merge found earlier for a pair that has changed since, when the new pair
	// gives the same token. The library `tokenizers` does so; the engine of MNN does not.
	SameID bool
}

// candidate is a merge that was possible at position pos when it was found.
type candidate struct{ rank, pos, id int32 }

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

type symbol struct{ id, prev, next int32 }

// Word is the symbols of a word, ids of tokens, and what it takes to merge them.
type Word struct {
	symbols []symbol
	heap    []candidate
}

var words = sync.Pool{New: func() any { return new(Word) }}

// dead marks a symbol that was merged into its left neighbour.
const dead = -1

// NewWord gives a word without symbols; Free takes it back.
func NewWord() *Word {
	w := words.Get().(*Word)
	w.symbols = w.symbols[:0]
	return w
}

// Free ends the use of a word.
func (w *Word) Free() { words.Put(w) }

// Push adds a symbol at the end.
func (w *Word) Push(id int32) {
	n := int32(len(w.symbols))
	w.symbols = append(w.symbols, symbol{id: id, prev: n - 1, next: n + 1})
}

// Apply merges the symbols of w and appends the ids that are left. Time is n log n in the symbols.
func (m *Merger) Apply(w *Word, dst []int32) []int32 {
	sym := w.symbols
	n := int32(len(sym))
	w.heap = w.heap[:0]
	for i := int32(0); i+1 < n; i++ {
		if found, ok := m.Merges[PairOf(sym[i].id, sym[i+1].id)]; ok {
			w.heap = append(w.heap, candidate{found.Rank, i, found.ID})
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
		now, ok := m.Merges[PairOf(left.id, right.id)]
		if !ok || now.ID != top.id || !m.SameID && now.Rank != top.rank {
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
func (m *Merger) offer(w *Word, left, right int32) {
	found, ok := m.Merges[PairOf(w.symbols[left].id, w.symbols[right].id)]
	if !ok {
		return
	}
	w.heap = append(w.heap, candidate{found.Rank, left, found.ID})
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
