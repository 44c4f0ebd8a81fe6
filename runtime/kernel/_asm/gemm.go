package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gemmPanel is the number of columns of a panel, PanelRows in package kernel.
const gemmPanel = 32

// gemmTileRows is the number of rows of the largest tile.
const (
	gemmTileRows512 = 12
	gemmTileRows256 = 6
)

func gemm() {
	for rows := 1; rows <= gemmTileRows512; rows++ {
		gemmTile{name: fmt.Sprintf("gemm%dx32AVX512", rows), rows: rows, vectors: 2, width: 64, registers: z}.emit()
	}
	gemmTile{name: "gemm1x64AVX512", rows: 1, panels: 2, vectors: 2, width: 64, registers: z}.emit()
	gemmTile{name: "gemm1x128AVX512", rows: 1, panels: 4, vectors: 2, width: 64, registers: z}.emit()
	for rows := 1; rows <= gemmTileRows256; rows++ {
		g := gemmTile{name: fmt.Sprintf("gemm%dx32AVX2", rows), rows: rows, vectors: 4, width: 32, registers: y}
		if rows > 3 { // half a panel after the other, or the sums would not fit the registers
			g.vectors = 2
		}
		g.emit()
	}
	gemmTile{name: "gemm1x64AVX2", rows: 1, panels: 2, vectors: 4, width: 32, registers: y}.emit()
	transpose8()
	transpose4()
	copyRows("copyRows8AVX2", y)
	copyRows("copyRows4AVX2", x)
	prefetchRows()
}

// gemmTile is a segment of the sums of a tile: c = a · b or c += a · b, where a is [k][rows] and every panel of b
// [k][gemmPanel]. More than one panel means one row.
type gemmTile struct {
	name      string
	rows      int
	panels    int // 0 is one, without a parameter for their distance
	vectors   int // of a panel, that are summed at once
	width     int // bytes of a vector
	registers []reg.VecPhysical
}

func (g gemmTile) emit() {
	signature, panels := "(c *float32, a *float32, b *float32, k int, ldc int, add bool)", 1
	if g.panels > 0 {
		signature, panels = "(c *float32, a *float32, b *float32, k int, ldb int, add bool)", g.panels
	}
	begin(g.name, signature)
	c, a0, b0, k := param("c"), param("a"), param("b"), param("k")
	var ldc, ldb, ldb3 reg.GPVirtual
	if g.panels > 0 {
		ldb = param("ldb")
		SHLQ(U8(2), ldb)
		if g.panels > 3 {
			ldb3 = GP64()
			LEAQ(Mem{Base: ldb, Index: ldb, Scale: 2}, ldb3)
		}
	} else {
		ldc = param("ldc")
		SHLQ(U8(2), ldc)
	}
	row, add := GP64(), GP8()
	Load(Param("add"), add)
	passes := 4 * gemmPanel / (g.width * g.vectors)
	var left reg.GPVirtual
	if passes > 1 {
		left = GP64()
		MOVQ(U32(passes), left)
		Label("pass")
	}

	columns := panels * g.vectors
	sums := g.rows * columns
	free := g.registers[sums:]
	sum := func(i, v int) reg.VecPhysical { return g.registers[i*columns+v] }
	a, b, n := GP64(), GP64(), GP64()
	MOVQ(a0, a)
	MOVQ(b0, b)
	MOVQ(k, n)
	if g.rows > 1 { // the sums go to rows that the caches may not hold
		MOVQ(c, row)
		for range g.rows {
			for at := 0; at < g.width*g.vectors; at += 64 {
				PREFETCHT0(Mem{Base: row, Disp: at})
			}
			ADDQ(ldc, row)
		}
	}
	for i := range sums {
		if g.width == 64 {
			VPXORD(g.registers[i], g.registers[i], g.registers[i])
		} else {
			VXORPS(g.registers[i], g.registers[i], g.registers[i])
		}
	}
	vector := func(v int) Mem { // of b
		m := Mem{Base: b, Disp: g.width * (v % g.vectors)}
		switch panel := v / g.vectors; panel {
		case 1, 2:
			m.Index, m.Scale = ldb, uint8(panel)
		case 3:
			m.Index, m.Scale = ldb3, 1
		}
		return m
	}
	Label("loop")
	switch {
	case g.rows <= columns: // few values of a stay in registers
		for i := range g.rows {
			VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, free[i])
		}
		rest := free[g.rows:]
		for v := range columns {
			w := rest[v%len(rest)]
			VMOVUPS(vector(v), w)
			for i := range g.rows {
				VFMADD231PS(w, free[i], sum(i, v))
			}
		}
	default:
		for v := range columns {
			VMOVUPS(vector(v), free[v])
		}
		rest := free[columns:]
		for i := range g.rows {
			x := rest[i%len(rest)]
			VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, x)
			for v := range columns {
				VFMADD231PS(free[v], x, sum(i, v))
			}
		}
	}
	ADDQ(Imm(uint64(4*g.rows)), a)
	ADDQ(U32(4*gemmPanel), b)
	DECQ(n)
	JNZ(LabelRef("loop"))

	slot := func(v int) Mem { return Mem{Base: row, Disp: g.width * v} }
	each := func(f func(i, v int)) {
		MOVQ(c, row)
		for i := range g.rows {
			for v := range columns {
				f(i, v)
			}
			if i+1 < g.rows {
				ADDQ(ldc, row)
			}
		}
	}
	TESTB(add, add)
	JZ(LabelRef("store"))
	each(func(i, v int) { VADDPS(slot(v), sum(i, v), sum(i, v)) })
	Label("store")
	each(func(i, v int) { VMOVUPS(sum(i, v), slot(v)) })
	if passes > 1 {
		ADDQ(U32(g.width*g.vectors), c)
		ADDQ(U32(g.width*g.vectors), b0)
		DECQ(left)
		JNZ(LabelRef("pass"))
	}
	end()
}

// transpose8 writes eight positions of eight rows as eight rows of eight, blocks times; the rows lie ldsrc bytes apart.
func transpose8() {
	begin("transpose8AVX2", "(dst *float32, src *byte, blocks int, lddst int, ldsrc int)")
	dst, blocks := param("dst"), param("blocks")
	lddst, ldsrc := param("lddst"), param("ldsrc")
	SHLQ(U8(2), lddst)
	from := newRows(param("src"), ldsrc, 8)
	to := newRows(dst, lddst, 8)
	step := GP64()
	MOVQ(lddst, step)
	SHLQ(U8(3), step)
	Label("loop")
	// Rows i and i+4 share a register, so that all further steps stay within 128 bits.
	for half := range 2 {
		for i := range 4 {
			r := 4*half + i
			at := from.at(i, 16*half)
			other := from.at(i+4, 16*half)
			VMOVUPS(at, x[r])
			VINSERTF128(Imm(1), other, y[r], y[r])
		}
	}
	for half := range 2 {
		r := y[4*half : 4*half+4]
		t := y[8:12]
		VUNPCKLPS(r[1], r[0], t[0]) // a0 b0 a1 b1
		VUNPCKHPS(r[1], r[0], t[1]) // a2 b2 a3 b3
		VUNPCKLPS(r[3], r[2], t[2])
		VUNPCKHPS(r[3], r[2], t[3])
		for p := range 2 {
			VUNPCKLPD(t[2+p], t[p], y[12])
			VUNPCKHPD(t[2+p], t[p], y[13])
			VMOVUPS(y[12], to.at(4*half+2*p, 0))
			VMOVUPS(y[13], to.at(4*half+2*p+1, 0))
		}
	}
	from.advance(32)
	ADDQ(step, to.base)
	ADDQ(step, to.base4)
	DECQ(blocks)
	JNZ(LabelRef("loop"))
	end()
}

// transpose4 writes four positions of four rows as four rows of four, blocks times.
func transpose4() {
	begin("transpose4AVX2", "(dst *float32, src *byte, blocks int, lddst int, ldsrc int)")
	dst, blocks := param("dst"), param("blocks")
	lddst, ldsrc := param("lddst"), param("ldsrc")
	SHLQ(U8(2), lddst)
	from := newRows(param("src"), ldsrc, 4)
	to := newRows(dst, lddst, 4)
	Label("loop")
	for i := range 4 {
		VMOVUPS(from.at(i, 0), x[i])
	}
	VUNPCKLPS(x[1], x[0], x[4])
	VUNPCKHPS(x[1], x[0], x[5])
	VUNPCKLPS(x[3], x[2], x[6])
	VUNPCKHPS(x[3], x[2], x[7])
	for p := range 2 {
		VUNPCKLPD(x[6+p], x[4+p], x[8+2*p])
		VUNPCKHPD(x[6+p], x[4+p], x[9+2*p])
	}
	for p := range 4 {
		VMOVUPS(x[8+p], to.at(p, 0))
	}
	from.advance(16)
	LEAQ(Mem{Base: to.base, Index: to.stride, Scale: 4}, to.base)
	DECQ(blocks)
	JNZ(LabelRef("loop"))
	end()
}

// prefetchRows asks for bytes of each of n rows, ld bytes apart.
func prefetchRows() {
	begin("prefetchRowsAVX2", "(src *byte, n int, bytes int, ld int)")
	src, n, bytes, ld := param("src"), param("n"), param("bytes"), param("ld")
	at, left := GP64(), GP64()
	Label("row")
	MOVQ(src, at)
	MOVQ(bytes, left)
	Label("line")
	PREFETCHT1(Mem{Base: at})
	ADDQ(Imm(64), at)
	SUBQ(Imm(64), left)
	JG(LabelRef("line"))
	ADDQ(ld, src)
	DECQ(n)
	JNZ(LabelRef("row"))
	end()
}

// copyRows copies rows of at least a vector; the last vector of a row may overlap the one before.
func copyRows(name string, registers []reg.VecPhysical) {
	begin(name, "(dst *float32, src *float32, width int, n int, lddst int, ldsrc int)")
	size := 4 * 8
	if registers[0].Size() == 16 {
		size = 4 * 4
	}
	dst, src, last, n := param("dst"), param("src"), param("width"), param("n")
	lddst, ldsrc := param("lddst"), param("ldsrc")
	SHLQ(U8(2), lddst)
	SHLQ(U8(2), ldsrc)
	SHLQ(U8(2), last)
	SUBQ(Imm(uint64(size)), last)
	at := GP64()
	Label("row")
	XORQ(at, at)
	JMP(LabelRef("test"))
	Label("vector")
	VMOVUPS(Mem{Base: src, Index: at, Scale: 1}, registers[0])
	VMOVUPS(registers[0], Mem{Base: dst, Index: at, Scale: 1})
	ADDQ(Imm(uint64(size)), at)
	Label("test")
	CMPQ(at, last)
	JLT(LabelRef("vector"))
	VMOVUPS(Mem{Base: src, Index: last, Scale: 1}, registers[0])
	VMOVUPS(registers[0], Mem{Base: dst, Index: last, Scale: 1})
	ADDQ(lddst, dst)
	ADDQ(ldsrc, src)
	DECQ(n)
	JNZ(LabelRef("row"))
	end()
}
