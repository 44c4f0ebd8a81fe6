package kernel

import "testing"

// checkCache wants position t of a cache to hold the values of row t of k and v.
func checkCache(t *testing.T, c *KVCache, k, v []float32) {
	t.Helper()
	dim := c.Dim()
	for pos := range c.Len() {
		for h := range c.KVHeads() {
			keys, values := c.block(h, pos/engineBlock)
			at, i := (pos*c.KVHeads()+h)*dim, pos%engineBlock
			for d := range dim {
				if got := keys[i/16*16*dim+d*16+i%16]; got != k[at+d] {
					t.Fatalf("dim %d: key %d of head %d, [%d] is %v, want %v", dim, pos, h, d, got, k[at+d])
				}
				if got := values[d/16*16*engineBlock+i*16+d%16]; got != v[at+d] {
					t.Fatalf("dim %d: value %d of head %d, [%d] is %v, want %v", dim, pos, h, d, got, v[at+d])
				}
			}
			for d := dim; d < c.valueTiles()*16; d++ {
				if got := values[d/16*16*engineBlock+i*16+d%16]; got != 0 {
					t.Fatalf("dim %d: padding of value %d is %v", dim, pos, got)
				}
			}
		}
	}
}

func TestKVCache(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, dim := range []int{1, 3, 4, 8, 15, 16, 17, 20, 64, 80} {
			const kvHeads, most = 3, 200
			width := kvHeads * dim
			k, v := engineValues(1, most*width, 1), engineValues(2, most*width, 1)
			c := NewKVCache(kvHeads, dim)
			append := func(tokens int) {
				at := c.Len() * width
				if tokens%2 == 0 {
					c.Append(k[at:at+tokens*width], v[at:at+tokens*width], tokens)
					return
				}
				c.Extend(tokens)
				for h := range kvHeads {
					c.Write(k[at:], v[at:], tokens, h, h+1)
				}
			}
			for _, tokens := range []int{0, 1, 7, 8, 9, 16, 3, 30, 64, 1, 61} {
				append(tokens)
			}
			if c.Len() != most {
				t.Fatalf("length %d", c.Len())
			}
			checkCache(t, c, k, v)
			c.Truncate(33)
			checkCache(t, c, k, v)
			bytes := c.Bytes()
			append(90)
			checkCache(t, c, k, v)
			if c.Bytes() != bytes {
				t.Errorf("%d bytes, then %d", bytes, c.Bytes())
			}
		}
	})
}

func TestKVCacheReserve(t *testing.T) {
	const kvHeads, dim, n = 2, 24, 300
	x := engineValues(1, n*kvHeads*dim, 1)
	c := NewKVCache(kvHeads, dim)
	c.Append(x, x, 70)
	c.Reserve(n)
	c.Reserve(n / 2)
	bytes := c.Bytes()
	if want := int64(4 * kvHeads * (dim + 32) * 320); bytes != want {
		t.Errorf("%d bytes, want %d", bytes, want)
	}
	if got := testing.AllocsPerRun(3, func() {
		c.Truncate(70)
		for c.Len() < n {
			c.Append(x[c.Len()*kvHeads*dim:], x[c.Len()*kvHeads*dim:], 1)
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
	if c.Bytes() != bytes {
		t.Errorf("%d bytes, want %d", c.Bytes(), bytes)
	}
	checkCache(t, c, x, x)
}
