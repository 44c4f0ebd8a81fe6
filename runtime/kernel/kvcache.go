package kernel

import "fmt"

// KVCache holds the keys and values of one attention layer, for positions 0 to Len()-1.
//
// Positions lie in blocks of 64, and a block in tiles of 16 columns, which is what vectors run over. Per block and kv
// head there are
//
//	keys   [4][dim][16]                 tile, dimension, position of the tile
//	values [ceil(dim/16)][64][16]       tile, position, dimension of the tile; zero after dim
//
// A block is never moved, so growing copies nothing.
type KVCache struct {
	kvHeads, dim, len int
	blocks            [][]float32
	free              []float32 // reserved for the next blocks
}

// engineBlock is the number of keys that are weighted together (MNN_FLASH_ATTENTION_BLOCK_SIZE).
const engineBlock = 64

// CacheBlock is the number of positions for which a KVCache takes memory at a time.
const CacheBlock = engineBlock

// tileColumns is the number of columns of a tile.
const tileColumns = 16

// NewKVCache returns an empty cache for kvHeads heads of dim values each. It panics unless both are positive.
func NewKVCache(kvHeads, dim int) *KVCache {
	if kvHeads <= 0 || dim <= 0 {
		panic(fmt.Sprintf("internal error: kernel.NewKVCache: %d heads of %d", kvHeads, dim))
	}
	return &KVCache{kvHeads: kvHeads, dim: dim}
}

// KVHeads is the number of heads that NewKVCache was given.
func (c *KVCache) KVHeads() int { return c.kvHeads }

// Dim is the number of values per head and position.
func (c *KVCache) Dim() int { return c.dim }

// Len is the number of positions.
func (c *KVCache) Len() int { return c.len }

// Bytes is the memory that the cache occupies, with what is reserved.
func (c *KVCache) Bytes() int64 {
	return 4 * (int64(len(c.blocks))*int64(c.blockSize()) + int64(len(c.free)))
}

// Truncate forgets all positions from n on and keeps their memory. It panics unless 0 <= n <= Len().
func (c *KVCache) Truncate(n int) {
	if n < 0 || n > c.len {
		panic(fmt.Sprintf("internal error: KVCache.Truncate: %d of %d", n, c.len))
	}
	c.len = n
}

// Reserve makes room for n positions in all: until then nothing is allocated.
func (c *KVCache) Reserve(n int) {
	need := (n+engineBlock-1)/engineBlock - len(c.blocks)
	if need*c.blockSize() <= len(c.free) {
		return
	}
	c.free = make([]float32, need*c.blockSize())
	blocks := make([][]float32, len(c.blocks), len(c.blocks)+need)
	copy(blocks, c.blocks)
	c.blocks = blocks
}

// Append adds tokens positions; k and v are [tokens, kvHeads, dim]. It panics if they are shorter.
func (c *KVCache) Append(k, v []float32, tokens int) {
	c.Extend(tokens)
	c.Write(k, v, tokens, 0, c.kvHeads)
}

// Extend adds tokens positions whose keys and values are to be written by Write.
func (c *KVCache) Extend(tokens int) {
	if tokens < 0 {
		panic(fmt.Sprintf("internal error: KVCache.Extend: %d tokens", tokens))
	}
	c.len += tokens
	for size := c.blockSize(); len(c.blocks)*engineBlock < c.len; {
		if len(c.free) < size {
			c.free = make([]float32, size)
		}
		c.blocks, c.free = append(c.blocks, c.free[:size:size]), c.free[size:]
	}
}

// Write sets the keys and values of the last tokens positions for the heads from lo to hi-1; k and v are [tokens,
// kvHeads, dim], of all heads. It panics if they are shorter. Calls with disjoint heads may overlap.
func (c *KVCache) Write(k, v []float32, tokens, lo, hi int) {
	size, width := tokens*c.kvHeads*c.dim, c.kvHeads*c.dim
	if tokens < 0 || tokens > c.len || lo < 0 || hi > c.kvHeads || len(k) < size || len(v) < size {
		panic(fmt.Sprintf("internal error: KVCache.Write: %d tokens of %d, heads %d to %d of %d, %d keys, %d values",
			tokens, c.len, lo, hi, c.kvHeads, len(k), len(v)))
	}
	for t := 0; t < tokens; {
		at := c.len - tokens + t
		n := min(tokens-t, engineBlock-at%engineBlock)
		for h := lo; h < hi; h++ {
			keys, values := c.block(h, at/engineBlock)
			from := t*width + h*c.dim
			c.writeKeys(keys, k[from:], at%engineBlock, n)
			c.writeValues(values, v[from:], at%engineBlock, n)
		}
		t += n
	}
}

// writeKeys sets the keys of n positions of a block, from at on; k has them kvHeads*dim apart.
func (c *KVCache) writeKeys(keys, k []float32, at, n int) {
	dim, width := c.dim, c.kvHeads*c.dim
	for i := 0; i < n; {
		column := (at + i) % tileColumns
		tile := keys[(at+i)/tileColumns*tileColumns*dim:][:dim*tileColumns]
		if column%8 == 0 && n-i >= 8 {
			var rows [8]int
			for r := range rows {
				rows[r] = (i + r) * width
			}
			gatherColumns(tile[column:], k, &rows, tileColumns, dim)
			i += 8
			continue
		}
		for d, x := range k[i*width:][:dim] {
			tile[d*tileColumns+column] = x
		}
		i++
	}
}

func (c *KVCache) writeValues(values, v []float32, at, n int) {
	dim, width := c.dim, c.kvHeads*c.dim
	for i := range n {
		row, dst := v[i*width:][:dim], values[(at+i)*tileColumns:]
		for len(row) >= tileColumns {
			*(*[tileColumns]float32)(dst) = *(*[tileColumns]float32)(row)
			if row = row[tileColumns:]; len(row) > 0 {
				dst = dst[engineBlock*tileColumns:]
			}
		}
		copy(dst, row)
	}
}

// gatherColumnsGeneric writes element d of row r, which starts at src[rows[r]], to dst[d*stride+r], for eight rows of
// dim elements.
func gatherColumnsGeneric(dst, src []float32, rows *[8]int, stride, dim int) {
	for r, at := range rows {
		for d, x := range src[at:][:dim] {
			dst[d*stride+r] = x
		}
	}
}

// block returns the keys and values of block i for a head.
func (c *KVCache) block(head, i int) (keys, values []float32) {
	b := c.headBlock(head, i)
	return b[:engineBlock*c.dim], b[engineBlock*c.dim:]
}

// headBlock returns both in one piece.
func (c *KVCache) headBlock(head, i int) []float32 {
	size := c.blockSize() / c.kvHeads
	return c.blocks[i][head*size:][:size]
}

func (c *KVCache) valueTiles() int { return (c.dim + tileColumns - 1) / tileColumns }

func (c *KVCache) blockSize() int {
	return c.kvHeads * engineBlock * (c.dim + tileColumns*c.valueTiles())
}
