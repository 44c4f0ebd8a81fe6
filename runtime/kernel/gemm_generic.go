package kernel

const (
	// gemmLanes is the number of partial sums of an element.
	gemmLanes = 8
	// gemmSegment is how far one pass over k goes: the six row pieces of a tile stay in the L1 cache while
	// each lane strides over them. A multiple of gemmLanes, so that a position keeps its lane.
	gemmSegment = 64
	// gemmBlock is how many elements of a are used against all of b before the next rows of a: half a
	// megabyte, which the L2 cache keeps.
	gemmBlock = 1 << 17
)

// matMulTGeneric is the definition of MatMulT.
func matMulTGeneric(dst, a, b []float32, m, n, k, ldd, lda, ldb int) {
	if k == 0 { // then a and b may have no elements to point at
		lda, ldb = 0, 0
	}
	block := max(2, gemmBlock/max(k, 1)&^1)
	for i0 := 0; i0 < m; i0 += block {
		i1 := min(i0+block, m)
		j := 0
		if i1-i0 >= 2 {
			for ; j+4 <= n; j += 4 {
				i := i0
				for ; i+2 <= i1; i += 2 {
					gemmTile(dst[i*ldd+j:], a[i*lda:], b[j*ldb:], k, ldd, lda, ldb)
				}
				if i < i1 {
					gemmRow(dst[i*ldd+j:i*ldd+j+4], a[i*lda:i*lda+k], b[j*ldb:], ldb)
				}
			}
		}
		if j == n {
			continue
		}
		for i := i0; i < i1; i++ {
			gemmRow(dst[i*ldd+j:i*ldd+n], a[i*lda:i*lda+k], b[j*ldb:], ldb)
		}
	}
}

// gemmRow fills dst with the products of a with as many rows of b.
func gemmRow(dst, a, b []float32, ldb int) {
	for j := range dst {
		dst[j] = gemmDot(a, b[j*ldb:j*ldb+len(a)])
	}
}

// gemmDot is one element: eight lanes side by side in registers.
func gemmDot(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]float32)(a), (*[8]float32)(b)
		// The conversions keep the compiler from fusing multiplication and addition.
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
		s4 += float32(x[4] * y[4])
		s5 += float32(x[5] * y[5])
		s6 += float32(x[6] * y[6])
		s7 += float32(x[7] * y[7])
		a, b = a[8:], b[8:]
	}
	s := [gemmLanes]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	for l := 0; l < len(a) && l < len(b) && l < len(s); l++ {
		s[l] += float32(a[l] * b[l])
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// gemmTile fills a tile of two rows and four columns. The partial sums of one lane fill eight registers;
// a wider tile spills (4 x 4: 4.4 GFLOP/s, 2 x 4: 8 on the same core).
func gemmTile(dst, a, b []float32, k, ldd, lda, ldb int) {
	var acc [gemmLanes][8]float32
	for p := 0; p < k; p += gemmSegment {
		q := min(p+gemmSegment, k)
		gemmSegmentTile(&acc, a[p:q], a[lda+p:lda+q], b[p:q], b[ldb+p:ldb+q], b[2*ldb+p:2*ldb+q], b[3*ldb+p:3*ldb+q])
	}
	for c := range 8 {
		dst[c/4*ldd+c%4] = ((acc[0][c] + acc[4][c]) + (acc[2][c] + acc[6][c])) + ((acc[1][c] + acc[5][c]) + (acc[3][c] + acc[7][c]))
	}
}

// gemmSegmentTile adds the products of a segment of k, one lane after the other.
func gemmSegmentTile(acc *[gemmLanes][8]float32, a0, a1, b0, b1, b2, b3 []float32) {
	a1, b0, b1, b2, b3 = a1[:len(a0)], b0[:len(a0)], b1[:len(a0)], b2[:len(a0)], b3[:len(a0)]
	for l := range acc {
		s := &acc[l]
		c00, c01, c02, c03, c10, c11, c12, c13 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
		for p := l; p < len(a0); p += gemmLanes {
			x0, x1 := a0[p], a1[p]
			y := b0[p]
			c00 += float32(x0 * y)
			c10 += float32(x1 * y)
			y = b1[p]
			c01 += float32(x0 * y)
			c11 += float32(x1 * y)
			y = b2[p]
			c02 += float32(x0 * y)
			c12 += float32(x1 * y)
			y = b3[p]
			c03 += float32(x0 * y)
			c13 += float32(x1 * y)
		}
		*s = [8]float32{c00, c01, c02, c03, c10, c11, c12, c13}
	}
}
