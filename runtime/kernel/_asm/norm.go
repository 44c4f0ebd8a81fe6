package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowGroups walks over rows, several at a time and then one by one, and emits body for each group. Registers x and lanes
// move on by whole rows: stride and 4*8*size bytes.
func rowGroups(group int, x, lanes, count, stride reg.GPVirtual, laneBytes int, body func(label string, r rows, n int)) {
	for _, n := range []int{group, 1} {
		label := fmt.Sprintf("rows%d", n)
		Label(label)
		CMPQ(count, U32(n))
		JLT(LabelRef(label + "done"))
		at := GP64()
		MOVQ(x, at)
		body(label, newRows(at, stride, n), n)
		for range n {
			ADDQ(stride, x)
		}
		ADDQ(U32(laneBytes*n), lanes)
		SUBQ(U32(n), count)
		JMP(LabelRef(label))
		Label(label + "done")
	}
}

// engineSquares writes eight sums of squares for each row: lane l of all groups of eight. Wider registers gain nothing,
// because a row has eight lanes.
func engineSquares() {
	begin("engineSquaresAVX2", "(lanes *float32, x *float32, rows int, width int, stride int)")
	lanes, px, count, width, stride := param("lanes"), param("x"), param("rows"), param("width"), param("stride")
	SHLQ(U8(2), stride)
	rowGroups(8, px, lanes, count, stride, 32, func(label string, r rows, n int) {
		for i := range n {
			VXORPS(y[i], y[i], y[i])
		}
		left := GP64()
		MOVQ(width, left)
		Label(label + "columns")
		for i := range n {
			VMOVUPS(r.at(i, 0), y[8+i%8])
		}
		for i := range n {
			VMULPS(y[8+i%8], y[8+i%8], y[8+i%8])
		}
		for i := range n {
			VADDPS(y[8+i%8], y[i], y[i])
		}
		r.advance(32)
		SUBQ(Imm(8), left)
		JNZ(LabelRef(label + "columns"))
		for i := range n {
			VMOVUPS(y[i], Mem{Base: lanes, Disp: 32 * i})
		}
	})
	end()
}

// exactSquares is the same in float64, where squares are exact.
func exactSquares(v vectors) {
	begin("exactSquares"+v.tier, "(lanes *float64, x *float32, rows int, width int, stride int)")
	lanes, px, count, width, stride := param("lanes"), param("x"), param("rows"), param("width"), param("stride")
	SHLQ(U8(2), stride)
	parts := 16 / v.lanes // registers for eight float64
	group := 8 / parts
	rowGroups(group, px, lanes, count, stride, 64, func(label string, r rows, n int) {
		for i := range n * parts {
			VXORPD(y[i], y[i], y[i])
		}
		left := GP64()
		MOVQ(width, left)
		Label(label + "columns")
		for i := range n * parts {
			VCVTPS2PD(r.at(i/parts, i%parts*2*v.lanes), v.reg[8+i])
		}
		for i := range n * parts {
			VMULPD(v.reg[8+i], v.reg[8+i], v.reg[8+i])
		}
		for i := range n * parts {
			VADDPD(v.reg[8+i], v.reg[i], v.reg[i])
		}
		r.advance(32)
		SUBQ(Imm(8), left)
		JNZ(LabelRef(label + "columns"))
		for i := range n * parts {
			VMOVUPD(v.reg[i], Mem{Base: lanes, Disp: v.bytes() * i})
		}
	})
	end()
}

// packedSquares adds the squares of 16 rows, each one by one; columns is a multiple of four and not 0. A register holds a
// column of eight rows, after a transposition of four columns. Rows are often 4096 bytes apart and then share a set of
// the first cache, which has fewer than 16 ways: so eight rows at a time, and 16 columns of them, a line. Wider registers
// gain nothing.
func packedSquares() {
	begin("packedSquaresAVX2", "(sums *float32, x *float32, offsets *int, columns int)")
	sums, base, offsets, left := param("sums"), param("x"), param("offsets"), param("columns")
	const acc = 14 // and 15
	for g := range 2 {
		VMOVUPS(Mem{Base: sums, Disp: 32 * g}, y[acc+g])
	}
	for _, columns := range []int{16, 4} {
		loop := fmt.Sprintf("columns%d", columns)
		Label(loop)
		CMPQ(left, Imm(uint64(columns)))
		JLT(LabelRef(loop + "done"))
		for g := range 2 {
			var rows [8]reg.GPVirtual
			for i := range rows {
				rows[i] = GP64()
				MOVQ(Mem{Base: offsets, Disp: 8 * (8*g + i)}, rows[i])
			}
			for c := 0; c < columns; c += 4 {
				// Register j holds four columns of the rows j and j+4.
				for j := range 4 {
					VMOVUPS(Mem{Base: base, Index: rows[j], Scale: 1, Disp: 4 * c}, x[j])
					VINSERTF128(Imm(1), Mem{Base: base, Index: rows[j+4], Scale: 1, Disp: 4 * c}, y[j], y[j])
				}
				for j := range 4 {
					VMULPS(y[j], y[j], y[j])
				}
				VUNPCKLPS(y[1], y[0], y[4]) // columns 0 and 1 of rows 0 and 1
				VUNPCKHPS(y[1], y[0], y[5])
				VUNPCKLPS(y[3], y[2], y[6])
				VUNPCKHPS(y[3], y[2], y[7])
				VUNPCKLPD(y[6], y[4], y[0])
				VUNPCKHPD(y[6], y[4], y[1])
				VUNPCKLPD(y[7], y[5], y[2])
				VUNPCKHPD(y[7], y[5], y[3])
				for j := range 4 {
					VADDPS(y[j], y[acc+g], y[acc+g])
				}
			}
		}
		ADDQ(Imm(uint64(4*columns)), base)
		SUBQ(Imm(uint64(columns)), left)
		JMP(LabelRef(loop))
		Label(loop + "done")
	}
	for g := range 2 {
		VMOVUPS(y[acc+g], Mem{Base: sums, Disp: 32 * g})
	}
	end()
}

// normalize writes (x*gamma)*inv + 0, or (x*inv)*gamma + 0 where packed, for the first columns of rows > 0 rows.
func normalize(v vectors, packed bool) {
	name := "normalize"
	if packed {
		name = "normalizePacked"
	}
	begin(name+v.tier, "(dst *float32, x *float32, gamma *float32, inv *float32, rows int, columns int, stride int)")
	dst, px, gamma, inv, count, columns, stride := param("dst"), param("x"), param("gamma"), param("inv"), param("rows"), param("columns"), param("stride")
	SUBQ(columns, stride)
	SHLQ(U8(2), stride)
	const factor, zero = 8, 9
	VXORPS(y[zero], y[zero], y[zero])
	Label("row")
	VBROADCASTSS(Mem{Base: inv}, v.reg[factor])
	left, pg := GP64(), GP64()
	MOVQ(columns, left)
	MOVQ(gamma, pg)
	v.each("columns", 4, left, []reg.GPVirtual{dst, px, pg}, func(s step) {
		for u := range s.unroll {
			VMOVUPS(Mem{Base: px, Disp: u * s.bytes()}, s.reg[u])
		}
		multiply := []func(u int){
			func(u int) { VMULPS(Mem{Base: pg, Disp: u * s.bytes()}, s.reg[u], s.reg[u]) },
			func(u int) { VMULPS(s.reg[factor], s.reg[u], s.reg[u]) },
		}
		if packed {
			multiply[0], multiply[1] = multiply[1], multiply[0]
		}
		for _, f := range multiply {
			for u := range s.unroll {
				f(u)
			}
		}
		for u := range s.unroll {
			VADDPS(s.reg[zero], s.reg[u], s.reg[u])
		}
		for u := range s.unroll {
			VMOVUPS(s.reg[u], Mem{Base: dst, Disp: u * s.bytes()})
		}
	})
	ADDQ(stride, dst)
	ADDQ(stride, px)
	ADDQ(Imm(4), inv)
	DECQ(count)
	JNZ(LabelRef("row"))
	end()
}

// exactNormalize writes (x*scale)*gamma, computed in float64.
func exactNormalize(v vectors) {
	begin("exactNormalize"+v.tier, "(dst *float32, x *float32, gamma *float32, scale *float64, rows int, columns int, stride int)")
	dst, px, gamma, scale, count, columns, stride := param("dst"), param("x"), param("gamma"), param("scale"), param("rows"), param("columns"), param("stride")
	SUBQ(columns, stride)
	SHLQ(U8(2), stride)
	const factor = 8
	parts := 16 / v.lanes
	Label("row")
	VBROADCASTSD(Mem{Base: scale}, v.reg[factor])
	left, pg := GP64(), GP64()
	MOVQ(columns, left)
	MOVQ(gamma, pg)
	Label("columns")
	for i := range parts {
		VCVTPS2PD(Mem{Base: px, Disp: i * 2 * v.lanes}, v.reg[i])
		VCVTPS2PD(Mem{Base: pg, Disp: i * 2 * v.lanes}, v.reg[4+i])
		VMULPD(v.reg[factor], v.reg[i], v.reg[i])
		VMULPD(v.reg[4+i], v.reg[i], v.reg[i])
		narrow(v, i)
		storeNarrow(v, i, Mem{Base: dst, Disp: i * 2 * v.lanes})
	}
	ADDQ(Imm(32), dst)
	ADDQ(Imm(32), px)
	ADDQ(Imm(32), pg)
	SUBQ(Imm(8), left)
	JNZ(LabelRef("columns"))
	ADDQ(stride, dst)
	ADDQ(stride, px)
	ADDQ(Imm(8), scale)
	DECQ(count)
	JNZ(LabelRef("row"))
	end()
}

// narrow rounds the float64 of register i to float32, in its lower half.
func narrow(v vectors, i int) {
	if v.lanes == 16 {
		VCVTPD2PS(z[i], half.reg[i])
	} else {
		VCVTPD2PSY(y[i], x[i])
	}
}

// storeNarrow stores the lower half of register i.
func storeNarrow(v vectors, i int, m Mem) {
	if v.lanes == 16 {
		VMOVUPS(half.reg[i], m)
	} else {
		VMOVUPS(x[i], m)
	}
}
