package kernel

import (
	"fmt"
	"sync"
)

// EngineFullAttention computes softmax(q kᵀ) v where every query of a head attends to all keys, with the bits of the three ops that
// graphs have for it: [EngineMatMul] with the keys transposed, [EngineSoftmaxRows], and EngineMatMul with the values. Of the scores,
// which are quadratic in the length, a worker holds those of a few queries at a time.
//
// Heads lie next to each other: q is [batch, queries, heads, dim], k is [batch, keys, heads, dim], v is [batch, keys, heads, valueDim]
// and out is [batch, queries, heads, valueDim], in float32. Head i is head i%heads of text i/heads of the batch.
type EngineFullAttention struct {
	queries, keys, heads, dim, valueDim int
	// Of each head, in tiles of 16 columns: [keys/16][dim][16] and [valueDim/16][keys][16], both filled up with zeros.
	keyTiles, valueTiles []float32
}

// FullAttentionRows is how many queries a worker should take at a time, or a multiple of it.
const FullAttentionRows = 32

// Reset prepares for heads of these sizes, batch of them of each; the memory that is there is reused. It panics unless there are two or
// more queries, keys and columns of values: the ops compute a single row or column in another order.
func (a *EngineFullAttention) Reset(batch, queries, keys, heads, dim, valueDim int) {
	if batch < 1 || queries < 2 || keys < 2 || heads < 1 || dim < 1 || valueDim < 2 {
		panic(fmt.Sprintf("internal error: kernel.EngineFullAttention: %d x %d heads of %d and %d, %d queries and %d keys",
			batch, heads, dim, valueDim, queries, keys))
	}
	a.queries, a.keys, a.heads, a.dim, a.valueDim = queries, keys, heads, dim, valueDim
	a.keyTiles, a.valueTiles = resized(a.keyTiles, batch*heads*a.keySize()), resized(a.valueTiles, batch*heads*a.valueSize())
}

// Bytes is the memory that a holds.
func (a *EngineFullAttention) Bytes() int64 { return 4 * int64(cap(a.keyTiles)+cap(a.valueTiles)) }

// tilesOf is the number of tiles of n columns.
func tilesOf(n int) int { return (n + tileColumns - 1) / tileColumns }

// keySize and valueSize are the elements of the tiles of a head.
func (a *EngineFullAttention) keySize() int   { return tilesOf(a.keys) * tileColumns * a.dim }
func (a *EngineFullAttention) valueSize() int { return tilesOf(a.valueDim) * tileColumns * a.keys }

// tiles are those of a head.
func (a *EngineFullAttention) tiles(head int) (keys, values []float32) {
	return a.keyTiles[head*a.keySize():][:a.keySize()], a.valueTiles[head*a.valueSize():][:a.valueSize()]
}

// Pack takes the keys and values of the heads from lo to hi-1. Calls for disjoint heads may overlap.
func (a *EngineFullAttention) Pack(k, v []float32, lo, hi int) {
	for i := lo; i < hi; i++ {
		keys, values := a.tiles(i)
		first := i/a.heads*a.keys*a.heads + i%a.heads
		a.packKeys(keys, k[first*a.dim:])
		a.packValues(values, v[first*a.valueDim:])
	}
}

func (a *EngineFullAttention) packKeys(dst, k []float32) {
	stride := a.heads * a.dim
	var rows [8]int
	for t := 0; t < a.keys; t += len(rows) {
		tile := dst[t/tileColumns*tileColumns*a.dim+t%tileColumns:]
		if a.keys-t >= len(rows) {
			for r := range rows {
				rows[r] = (t + r) * stride
			}
			gatherColumns(tile, k, &rows, tileColumns, a.dim)
			continue
		}
		for d := range a.dim {
			column := tile[d*tileColumns:][:len(rows)]
			clear(column)
			for r := range a.keys - t {
				column[r] = k[(t+r)*stride+d]
			}
		}
	}
	if half := (a.keys + len(rows) - 1) / len(rows); half%2 != 0 { // the last tile has one group of eight
		tile := dst[half/2*tileColumns*a.dim:]
		for d := range a.dim {
			clear(tile[d*tileColumns+len(rows):][:len(rows)])
		}
	}
}

func (a *EngineFullAttention) packValues(dst, v []float32) {
	stride := a.heads * a.valueDim
	for c := 0; c < a.valueDim; c += tileColumns {
		tile, n := dst[c*a.keys:], min(tileColumns, a.valueDim-c)
		for t := range a.keys {
			row := (*[tileColumns]float32)(tile[t*tileColumns:])
			if n == tileColumns {
				*row = [tileColumns]float32(v[t*stride+c:])
				continue
			}
			clear(row[copy(row[:n], v[t*stride+c:]):])
		}
	}
}

// fullScratch is memory of a worker.
type fullScratch struct {
	lanes         attentionLanes
	scores, mixed []float32
}

var fullScratches = sync.Pool{New: func() any { return new(fullScratch) }}

// Attend computes the queries from from to end-1 of a head, whose keys and values have been packed. Calls may overlap; the result of a
// query does not depend on the range.
func (a *EngineFullAttention) Attend(out, q []float32, head, from, end int) {
	first := head/a.heads*a.queries*a.heads + head%a.heads
	if from < 0 || end > a.queries || len(q) < (first+(a.queries-1)*a.heads+1)*a.dim || len(out) < (first+(a.queries-1)*a.heads+1)*a.valueDim {
		panic(fmt.Sprintf("internal error: kernel.EngineFullAttention: queries %d to %d of %d of head %d, %d and %d values",
			from, end, a.queries, head, len(q), len(out)))
	}
	out, q = out[first*a.valueDim:], q[first*a.dim:]
	s := fullScratches.Get().(*fullScratch)
	defer fullScratches.Put(s)
	if from < end && end == a.queries && leavesOne(a.queries) {
		end--
		a.attendRows(s, out, q, head, end, end+1, true)
	}
	if from < end && !a.attendLanes(s, out, q, head, from, end) {
		const most = 8 // rows, of which the scores are small
		for ; from < end; from += most {
			a.attendRows(s, out, q, head, from, min(from+most, end), false)
		}
	}
}

// attendRows takes queries that lie one after the other, or with alone a single one in four sums. out and q begin with the head.
func (a *EngineFullAttention) attendRows(s *fullScratch, out, q []float32, head, from, end int, alone bool) {
	rows, keyTiles, valueTiles := end-from, tilesOf(a.keys), tilesOf(a.valueDim)
	width, columns := keyTiles*tileColumns, valueTiles*tileColumns
	s.scores, s.mixed = resized(s.scores, rows*width), resized(s.mixed, rows*columns)
	keys, values := a.tiles(head)
	dots := tileProduct{heads: rows, n: a.dim, count: keyTiles, dstStride: width, xStride: a.heads * a.dim, tStride: a.dim * tileColumns}
	mixes := tileProduct{heads: rows, n: a.keys, count: valueTiles, dstStride: columns, xStride: width, tStride: a.keys * tileColumns}
	q = q[from*a.heads*a.dim:]
	if alone {
		dots.quad(s.scores, q, keys, 1, nil, nil)
	} else {
		dots.ascending(s.scores, q, keys)
	}
	for r := range rows {
		row := s.scores[r*width:][:a.keys]
		EngineSoftmaxRows(row, row, a.keys)
	}
	if alone {
		mixes.quad(s.mixed, s.scores, values, 1, nil, nil)
	} else {
		mixes.ascending(s.mixed, s.scores, values)
	}
	for r := range rows {
		copy(out[(from+r)*a.heads*a.valueDim:][:a.valueDim], s.mixed[r*columns:])
	}
}
