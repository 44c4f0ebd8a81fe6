package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func gemm() {
	// Eight words of ones, then zeros: read at 32-4n bytes it is the mask of the first n lanes.
	mask := words("gemmMask", append(repeat(1<<32-1, 8), repeat(0, 8)...)...)
	gemmTile(4, 2, true, mask)
	gemmTile(4, 2, false, mask)
	gemmTile(4, 1, false, mask)
	gemmTile(1, 8, false, mask)
	gemmTile(1, 1, false, mask)
	gemmTile512(mask)
	gemmPack(mask)
	gemmReduce()
}

const (
	gemmSignature       = "(acc *float32, a *float32, b *float32, k int, lda int, ldb int)"
	gemmPackedSignature = "(acc *float32, a *float32, b *float32, k int, lda int)"
)

// gemmRows are the rows of b, packed or not.
type gemmRows struct {
	rows
	packed bool
}

func (r gemmRows) at(i int) Mem {
	if r.packed {
		return Mem{Base: r.base, Disp: 32 * i}
	}
	return r.rows.at(i, 0)
}

// gemmFrame emits the loop over k: step adds eight products to each lane sum, from memory or, at the end, masked.
func gemmFrame(rowsA, rowsB int, packed bool, mask Mem, step func(a rows, b gemmRows), last func(a rows, b gemmRows, mask reg.VecPhysical)) {
	k, lda := param("k"), param("lda")
	SHLQ(U8(2), lda)
	a, b := newRows(param("a"), lda, rowsA), gemmRows{rows{base: param("b")}, packed}
	if !packed {
		ldb := param("ldb")
		SHLQ(U8(2), ldb)
		b.rows = newRows(b.base, ldb, rowsB)
	}
	n := GP64()
	MOVQ(k, n)
	SHRQ(U8(3), n)
	JZ(LabelRef("tail"))
	Label("loop")
	step(a, b)
	a.advance(32)
	if packed {
		ADDQ(U32(256), b.base)
	} else {
		b.advance(32)
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	Label("tail")
	ANDQ(Imm(7), k)
	JZ(LabelRef("done"))
	table := GP64()
	LEAQ(mask, table)
	NEGQ(k)
	VMOVUPS(Mem{Base: table, Index: k, Scale: 4, Disp: 32}, y[15])
	last(a, b, y[15])
	Label("done")
}

// gemmTile adds to the lanes of m x n sums; a row of acc has space for eight.
func gemmTile(m, n int, packed bool, mask Mem) {
	if packed {
		begin(fmt.Sprintf("gemm%dx%dPackedAVX2", m, n), gemmPackedSignature)
	} else {
		begin(fmt.Sprintf("gemm%dx%dAVX2", m, n), gemmSignature)
	}
	acc := param("acc")
	sum := func(i, j int) reg.VecPhysical { return y[i*n+j] }
	slot := func(i, j int) Mem { return Mem{Base: acc, Disp: 256*i + 32*j} }
	for i := range m {
		for j := range n {
			VMOVUPS(slot(i, j), sum(i, j))
		}
	}
	held, product := y[m*n:], y[13:15]
	add := func(i, j int, x, w Op) {
		p := product[(i+j)%2]
		VMULPS(w, x, p)
		VADDPS(p, sum(i, j), sum(i, j))
	}
	gemmFrame(m, n, packed, mask, func(a rows, b gemmRows) {
		if m == 1 { // every b is used once
			VMOVUPS(a.at(0, 0), held[0])
			for j := range n {
				add(0, j, held[0], b.at(j))
			}
			return
		}
		for j := range n {
			VMOVUPS(b.at(j), held[j])
		}
		for i := range m {
			VMOVUPS(a.at(i, 0), held[n])
			for j := range n {
				add(i, j, held[n], held[j])
			}
		}
	}, func(a rows, b gemmRows, mask reg.VecPhysical) {
		for i := range m {
			VMASKMOVPS(a.at(i, 0), mask, held[0])
			for j := range n {
				VMASKMOVPS(b.at(j), mask, held[1])
				add(i, j, held[0], held[1])
			}
		}
	})
	for i := range m {
		for j := range n {
			VMOVUPS(sum(i, j), slot(i, j))
		}
	}
	end()
}

// gemmTile512 is the tile 4 x 8, packed, with the lanes of two columns in a register.
func gemmTile512(mask Mem) {
	begin("gemm4x8PackedAVX512", gemmPackedSignature)
	acc := param("acc")
	sum := func(i, p int) reg.VecPhysical { return z[16+4*i+p] }
	for i := range 4 {
		for p := range 4 {
			VMOVUPS(Mem{Base: acc, Disp: 256*i + 64*p}, sum(i, p))
		}
	}
	add := func(i, p int, x Op) {
		t := z[8+p]
		VMULPS(z[p], x, t)
		VADDPS(t, sum(i, p), sum(i, p))
	}
	gemmFrame(4, 8, true, mask, func(a rows, b gemmRows) {
		for p := range 4 {
			VMOVUPS(b.at(2*p), z[p])
		}
		for i := range 4 {
			VBROADCASTF64X4(a.at(i, 0), z[4+i])
			for p := range 4 {
				add(i, p, z[4+i])
			}
		}
	}, func(a rows, b gemmRows, mask reg.VecPhysical) {
		for p := range 4 {
			VMOVUPS(b.at(2*p), z[p])
		}
		for i := range 4 {
			VMASKMOVPS(a.at(i, 0), mask, y[4])
			VINSERTF64X4(Imm(1), y[4], z[4], z[4])
			for p := range 4 {
				add(i, p, z[4])
			}
		}
	})
	for i := range 4 {
		for p := range 4 {
			VMOVUPS(sum(i, p), Mem{Base: acc, Disp: 256*i + 64*p})
		}
	}
	end()
}

// gemmPack writes k positions of eight rows, eight positions at a time and filled up with zeros.
func gemmPack(mask Mem) {
	begin("gemmPackAVX2", "(dst *float32, b *float32, k int, ldb int)")
	dst, k, ldb := param("dst"), param("k"), param("ldb")
	SHLQ(U8(2), ldb)
	b := newRows(param("b"), ldb, 8)
	n := GP64()
	MOVQ(k, n)
	SHRQ(U8(3), n)
	JZ(LabelRef("tail"))
	Label("loop")
	for i := range 8 {
		VMOVUPS(b.at(i, 0), y[i])
	}
	for i := range 8 {
		VMOVUPS(y[i], Mem{Base: dst, Disp: 32 * i})
	}
	b.advance(32)
	ADDQ(U32(256), dst)
	DECQ(n)
	JNZ(LabelRef("loop"))
	Label("tail")
	ANDQ(Imm(7), k)
	JZ(LabelRef("done"))
	table := GP64()
	LEAQ(mask, table)
	NEGQ(k)
	VMOVUPS(Mem{Base: table, Index: k, Scale: 4, Disp: 32}, y[15])
	for i := range 8 {
		VMASKMOVPS(b.at(i, 0), y[15], y[i])
		VMOVUPS(y[i], Mem{Base: dst, Disp: 32 * i})
	}
	Label("done")
	end()
}

// gemmReduce adds up the lanes of eight sums: ((0+4)+(2+6)) + ((1+5)+(3+7)).
func gemmReduce() {
	begin("gemmReduceAVX2", "(dst *float32, acc *float32)")
	dst, acc := param("dst"), param("acc")
	for j := range 4 { // of sums j and j+4: 0+4, 1+5, 2+6, 3+7
		VMOVUPS(Mem{Base: acc, Disp: 32 * j}, x[j])
		VINSERTF128(Imm(1), Mem{Base: acc, Disp: 32 * (j + 4)}, y[j], y[j])
		VMOVUPS(Mem{Base: acc, Disp: 32*j + 16}, x[4+j])
		VINSERTF128(Imm(1), Mem{Base: acc, Disp: 32*(j+4) + 16}, y[4+j], y[4+j])
		VADDPS(y[4+j], y[j], y[j])
	}
	for j := range 2 { // of sums 2j and 2j+1, and of 2j+4 and 2j+5
		VUNPCKLPS(y[2*j+1], y[2*j], y[8+j])
		VUNPCKHPS(y[2*j+1], y[2*j], y[10+j])
		VADDPS(y[10+j], y[8+j], y[8+j]) // (0+4)+(2+6) of both, (1+5)+(3+7) of both
	}
	VUNPCKLPD(y[9], y[8], y[0])
	VUNPCKHPD(y[9], y[8], y[1])
	VADDPS(y[1], y[0], y[0])
	VMOVUPS(y[0], Mem{Base: dst})
	end()
}
