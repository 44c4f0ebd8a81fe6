package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// elements emits what runs between the matrix products in float32. Lengths are multiples of eight and not 0.
func elements() {
	magnitude, infinity := floats("magnitude", 1<<31-1), floats("infinity", math.Float32bits(float32(math.Inf(1))))
	silu, gelu := newSilu(), newGelu()
	for _, v := range []vectors{avx2, avx512} {
		binary("add", v, VADDPS)
		binary("mul", v, VMULPS)
		scale("scale", "factor", v, VMULPS)
		scale("shift", "term", v, VADDPS)
		addScaled(v)
		addScaledRows(v)
		addShifted(v)
		peaks(v, magnitude)
		// At least: greater or equal, and no NaN.
		find("atLeast", v, "(x *float32, n int, limit float32) int", 29, func(limit reg.VecPhysical) {
			VBROADCASTSS(NewParamAddr("limit", 16), limit)
		}, nil)
		// Neither finite: not less than infinity, or a NaN.
		find("nonFinite", v, "(x *float32, n int) int", 21, func(limit reg.VecPhysical) {
			VMOVUPS(infinity, limit)
		}, magnitude)
		for _, name := range []string{"engineExps", "engineSiLU", "engineSiLUMul"} {
			silu.emit(v, name)
		}
		gelu.emit(v)
		rotate(v)
		exactSquares(v)
		normalize(v, false)
		normalize(v, true)
		exactNormalize(v)
	}
	engineSquares()
	packedSquares()
}

func binary(name string, v vectors, op func(ops ...Op)) {
	begin(name+v.tier, "(dst *float32, x *float32, y *float32, n int)")
	dst, px, py, n := param("dst"), param("x"), param("y"), param("n")
	v.each("loop", 4, n, []reg.GPVirtual{dst, px, py}, func(s step) {
		for u := range s.unroll {
			VMOVUPS(Mem{Base: px, Disp: u * s.bytes()}, s.reg[u])
		}
		for u := range s.unroll {
			op(Mem{Base: py, Disp: u * s.bytes()}, s.reg[u], s.reg[u])
		}
		for u := range s.unroll {
			VMOVUPS(s.reg[u], Mem{Base: dst, Disp: u * s.bytes()})
		}
	})
	end()
}

func scale(name, number string, v vectors, op func(ops ...Op)) {
	begin(name+v.tier, "(dst *float32, x *float32, n int, "+number+" float32)")
	dst, px, n := param("dst"), param("x"), param("n")
	VBROADCASTSS(NewParamAddr(number, 24), v.reg[4])
	v.each("loop", 4, n, []reg.GPVirtual{dst, px}, func(s step) {
		for u := range s.unroll {
			op(Mem{Base: px, Disp: u * s.bytes()}, s.reg[4], s.reg[u])
		}
		for u := range s.unroll {
			VMOVUPS(s.reg[u], Mem{Base: dst, Disp: u * s.bytes()})
		}
	})
	end()
}

func addScaled(v vectors) {
	begin("addScaled"+v.tier, "(dst *float32, x *float32, n int, factor float32)")
	dst, px, n := param("dst"), param("x"), param("n")
	VBROADCASTSS(NewParamAddr("factor", 24), v.reg[4])
	v.each("loop", 4, n, []reg.GPVirtual{dst, px}, func(s step) {
		for u := range s.unroll {
			VMULPS(Mem{Base: px, Disp: u * s.bytes()}, s.reg[4], s.reg[u])
		}
		for u := range s.unroll {
			VADDPS(Mem{Base: dst, Disp: u * s.bytes()}, s.reg[u], s.reg[u])
		}
		for u := range s.unroll {
			VMOVUPS(s.reg[u], Mem{Base: dst, Disp: u * s.bytes()})
		}
	})
	end()
}

func addShifted(v vectors) {
	begin("addShifted"+v.tier, "(dst *float32, x *float32, n int, factor float32, term float32)")
	dst, px, n := param("dst"), param("x"), param("n")
	VBROADCASTSS(NewParamAddr("factor", 24), v.reg[4])
	VBROADCASTSS(NewParamAddr("term", 28), v.reg[5])
	v.each("loop", 4, n, []reg.GPVirtual{dst, px}, func(s step) {
		for u := range s.unroll {
			VMULPS(Mem{Base: px, Disp: u * s.bytes()}, s.reg[4], s.reg[u])
		}
		for u := range s.unroll {
			VADDPS(s.reg[5], s.reg[u], s.reg[u])
		}
		for u := range s.unroll {
			VADDPS(Mem{Base: dst, Disp: u * s.bytes()}, s.reg[u], s.reg[u])
		}
		for u := range s.unroll {
			VMOVUPS(s.reg[u], Mem{Base: dst, Disp: u * s.bytes()})
		}
	})
	end()
}

// addScaledRows keeps the sums of some columns in registers while it goes through the rows.
func addScaledRows(v vectors) {
	begin("addScaledRows"+v.tier, "(dst *float32, x *float32, factors *float32, n int, rows int)")
	dst, px, factors, n, rows := param("dst"), param("x"), param("factors"), param("n"), param("rows")
	stride, row, factor, left := GP64(), GP64(), GP64(), GP64()
	MOVQ(n, stride)
	SHLQ(U8(2), stride)
	unroll := 64 / v.lanes
	for i, s := range []step{{v, unroll}, {v, unroll / 2}, {v, 1}, {half, 1}}[:2+v.lanes/8] {
		loop, down := fmt.Sprintf("loop%d", i), fmt.Sprintf("row%d", i)
		size := s.lanes * s.unroll
		scale, terms := s.reg[8], s.reg[9:]
		Label(loop)
		CMPQ(n, U32(size))
		JLT(LabelRef(loop + "done"))
		for u := range s.unroll {
			VMOVUPS(Mem{Base: dst, Disp: u * s.bytes()}, s.reg[u])
		}
		MOVQ(px, row)
		MOVQ(factors, factor)
		MOVQ(rows, left)
		Label(down)
		VBROADCASTSS(Mem{Base: factor}, scale)
		for u := range s.unroll {
			t := terms[u%4]
			VMULPS(Mem{Base: row, Disp: u * s.bytes()}, scale, t)
			VADDPS(t, s.reg[u], s.reg[u])
		}
		ADDQ(stride, row)
		ADDQ(Imm(4), factor)
		DECQ(left)
		JNZ(LabelRef(down))
		for u := range s.unroll {
			VMOVUPS(s.reg[u], Mem{Base: dst, Disp: u * s.bytes()})
		}
		ADDQ(U32(4*size), dst)
		ADDQ(U32(4*size), px)
		SUBQ(U32(size), n)
		JMP(LabelRef(loop))
		Label(loop + "done")
	}
	end()
}

// peaks returns the largest element, passing over NaNs, and the largest magnitude as bits, where a NaN is above infinity.
func peaks(v vectors, magnitude Mem) {
	begin("peaks"+v.tier, "(x *float32, n int) (top float32, size uint32)")
	px, n := param("x"), param("n")
	const tops, sizes, mask, narrow = 4, 8, 12, 13 // of the narrow steps: 13 and 14
	VMOVUPS(magnitude, v.reg[mask])
	low := GP32()
	MOVL(U32(math.Float32bits(float32(math.Inf(-1)))), low)
	VMOVD(low, x[narrow])
	VBROADCASTSS(x[narrow], y[narrow])
	VPXOR(y[narrow+1], y[narrow+1], y[narrow+1])
	for u := range 4 {
		VBROADCASTSS(x[narrow], v.reg[tops+u])
		VXORPS(y[sizes+u], y[sizes+u], y[sizes+u])
	}
	v.each("loop", 4, n, []reg.GPVirtual{px}, func(s step) {
		top, size := tops, sizes
		if s.lanes < v.lanes {
			top, size = narrow, narrow+1
		}
		for u := range s.unroll {
			VMOVUPS(Mem{Base: px, Disp: u * s.bytes()}, s.reg[u])
		}
		for u := range s.unroll {
			VMAXPS(s.reg[top+u], s.reg[u], s.reg[top+u]) // keeps the old one at a NaN, being the second source
		}
		for u := range s.unroll {
			VANDPS(s.reg[mask], s.reg[u], s.reg[u])
		}
		for u := range s.unroll {
			VPMAXUD(s.reg[u], s.reg[size+u], s.reg[size+u])
		}
	})
	foldMax(VMAXPS, v.reg[tops:tops+4], v, y[narrow], tops, 0)
	foldMax(VPMAXUD, v.reg[sizes:sizes+4], v, y[narrow+1], sizes, 0)
	size := GP32()
	VMOVD(x[sizes], size)
	Store(x[tops], ReturnIndex(0))
	Store(size, ReturnIndex(1))
	end()
}

// find returns the index of the first element that compares to the limit as the predicate says, or n. The mask is and-ed
// to the elements first.
func find(name string, v vectors, signature string, predicate uint8, setLimit func(reg.VecPhysical), mask Op) {
	begin(name+v.tier, signature)
	px, left := param("x"), param("n")
	n, hits := GP64(), GP32()
	MOVQ(left, n)
	const limit, masked = 8, 9
	setLimit(v.reg[limit])
	if mask != nil {
		VMOVUPS(mask, v.reg[masked])
	}
	// compare sets hits for registers at px, or only the flags.
	compare := func(s step) {
		if s.lanes == 8 && v.lanes == 16 {
			s.vectors = avx2
		}
		for u := range s.unroll {
			VMOVUPS(Mem{Base: px, Disp: u * s.bytes()}, s.reg[u])
			if mask != nil {
				VANDPS(s.reg[masked], s.reg[u], s.reg[u])
			}
			if s.lanes == 16 {
				VCMPPS(U8(predicate), s.reg[limit], s.reg[u], k[1+u])
			} else {
				VCMPPS(U8(predicate), s.reg[limit], s.reg[u], s.reg[u])
			}
		}
		for u := 1; u < s.unroll; u++ {
			if s.lanes == 16 {
				KORW(k[1+u], k[1], k[1])
			} else {
				VORPS(s.reg[u], s.reg[0], s.reg[0])
			}
		}
		if s.lanes == 16 {
			KMOVW(k[1], hits)
		} else {
			VMOVMSKPS(s.reg[0], hits)
		}
		TESTL(hits, hits)
	}
	for i, s := range v.steps(4) {
		loop, done := fmt.Sprintf("loop%d", i), fmt.Sprintf("done%d", i)
		size := s.lanes * s.unroll
		Label(loop)
		CMPQ(left, U32(size))
		JLT(LabelRef(done))
		compare(s)
		if s.unroll > 1 {
			JNZ(LabelRef(done)) // the next loop finds it
		} else {
			JNZ(LabelRef("found"))
		}
		ADDQ(U32(4*size), px)
		SUBQ(U32(size), left)
		JMP(LabelRef(loop))
		Label(done)
	}
	XORL(hits, hits)
	SUBQ(left, n)
	Store(n, ReturnIndex(0))
	end()
	Label("found")
	BSFL(hits, hits)
	SUBQ(left, n)
	ADDQ(hits.As64(), n)
	Store(n, ReturnIndex(0))
	end()
}

var k = []reg.OpmaskPhysical{reg.K0, reg.K1, reg.K2, reg.K3, reg.K4, reg.K5, reg.K6, reg.K7}
