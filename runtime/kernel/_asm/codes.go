package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// codes emits what a descent over codes needs. Lengths are multiples of eight and not 0.
func codes() {
	magnitude, one, round, sign := floats("magnitude", 1<<31-1), floats("one", 1), floats("round", round32), floats("sign", 1<<31)
	for _, v := range []vectors{avx2, avx512} {
		beyond(v, magnitude)
		codeSums(v, magnitude, one)
		codeErrors(v, round, sign)
	}
}

// beyond returns the index of the first element whose magnitude is not below the factor times that of limits, or n.
func beyond(v vectors, magnitude Mem) {
	begin("beyond"+v.tier, "(x *float32, limits *float32, n int, factor float32) int")
	px, limits, left := param("x"), param("limits"), param("n")
	at, hits := GP64(), GP32()
	XORQ(at, at)
	VBROADCASTSS(NewParamAddr("factor", 24), v.reg[4])
	VMOVUPS(magnitude, v.reg[5])
	const notBelow = 21 // or a NaN
	v.each("loop", 1, left, []reg.GPVirtual{px, limits}, func(s step) {
		if s.lanes == 8 {
			s.vectors = avx2
		}
		VANDPS(Mem{Base: px}, s.reg[5], s.reg[0])
		VMULPS(Mem{Base: limits}, s.reg[4], s.reg[1])
		if s.lanes == 16 {
			VCMPPS(U8(notBelow), s.reg[1], s.reg[0], k[1])
			KMOVW(k[1], hits)
		} else {
			VCMPPS(U8(notBelow), s.reg[1], s.reg[0], s.reg[0])
			VMOVMSKPS(s.reg[0], hits)
		}
		TESTL(hits, hits)
		JNZ(LabelRef("found"))
		ADDQ(Imm(uint64(s.lanes)), at)
	})
	Store(at, ReturnIndex(0))
	end()
	Label("found")
	BSFL(hits, hits)
	ADDQ(hits.As64(), at)
	Store(at, ReturnIndex(0))
	end()
}

// codeSums returns the sums of code * x and of x, in no particular order, the largest magnitude of x as bits, and the least but one step.
func codeSums(v vectors, magnitude, step Mem) {
	begin("codeSums"+v.tier, "(code *float32, x *float32, n int) (products float64, sum float64, most uint32, least uint32)")
	pc, px, n := param("code"), param("x"), param("n")
	const products, sums, bits, most, least, mask, one = 0, 2, 8, 9, 10, 11, 12 // the former two are pairs
	zeroed(v.reg[:4]...)
	zeroed(y[most])
	VPCMPEQD(y[least], y[least], y[least])
	VMOVUPS(magnitude, y[mask])
	VMOVUPS(step, y[one])
	Label("loop")
	VANDPS(Mem{Base: px}, y[mask], y[bits])
	VPMAXUD(y[bits], y[most], y[most])
	VPSUBD(y[one], y[bits], y[bits]) // of 0 the largest of all
	VPMINUD(y[bits], y[least], y[least])
	for i := range 16 / v.lanes {
		VCVTPS2PD(Mem{Base: px, Disp: 16 * i}, v.reg[4+i])
		VCVTPS2PD(Mem{Base: pc, Disp: 16 * i}, v.reg[6+i])
		VADDPD(v.reg[4+i], v.reg[sums+i], v.reg[sums+i])
		VFMADD231PD(v.reg[4+i], v.reg[6+i], v.reg[products+i])
	}
	ADDQ(Imm(32), px)
	ADDQ(Imm(32), pc)
	SUBQ(Imm(8), n)
	JNZ(LabelRef("loop"))
	for i, at := range []int{products, sums} {
		if v.lanes == 16 {
			VEXTRACTF64X4(Imm(1), z[at], y[at+1])
		}
		VADDPD(y[at+1], y[at], y[at])
		VEXTRACTF128(Imm(1), y[at], x[at+1])
		VADDPD(x[at+1], x[at], x[at])
		VHADDPD(x[at], x[at], x[at])
		Store(x[at], ReturnIndex(i))
	}
	for i, at := range []int{most, least} {
		op := []func(...Op){VPMAXUD, VPMINUD}[i]
		VEXTRACTI128(Imm(1), y[at], x[bits])
		op(x[bits], x[at], x[at])
		for _, swap := range []uint8{0x4e, 0xb1} {
			VPSHUFD(U8(swap), x[at], x[bits])
			op(x[bits], x[at], x[at])
		}
		r := GP32()
		VMOVD(x[at], r)
		Store(r, ReturnIndex(2+i))
	}
	end()
}

// codeErrors rounds every value to its own grid, stores the error over the divisor with the other sign, and adds its square to the sums.
func codeErrors(v vectors, round, sign Mem) {
	begin("codeErrors"+v.tier, "(dst *float32, squares *float64, value *float32, zero *float32, scale *float32, inverse *float32, n int, "+
		"divisor float32, least float32, most float32)")
	dst, squares, value, zero := param("dst"), param("squares"), param("value"), param("zero")
	scale, inverse, n := param("scale"), param("inverse"), param("n")
	r := v.reg
	const by, least, most, magic, minus = 8, 9, 10, 11, 12
	VBROADCASTSS(argument("divisor"), r[by])
	VBROADCASTSS(argument("least"), r[least])
	VBROADCASTSS(argument("most"), r[most])
	VMOVUPS(round, r[magic])
	VMOVUPS(sign, r[minus])
	v.each("loop", 1, n, []reg.GPVirtual{dst, squares, squares, value, zero, scale, inverse}, func(s step) {
		r := s.reg
		VMOVUPS(Mem{Base: value}, r[0])
		VMOVUPS(Mem{Base: zero}, r[1])
		VSUBPS(r[1], r[0], r[2])
		VMULPS(Mem{Base: inverse}, r[2], r[2])
		VMAXPS(r[least], r[2], r[2])
		VMINPS(r[most], r[2], r[2])
		VADDPS(r[magic], r[2], r[2])
		VSUBPS(r[magic], r[2], r[2])
		VMULPS(Mem{Base: scale}, r[2], r[2])
		VADDPS(r[1], r[2], r[2])
		VSUBPS(r[2], r[0], r[0])
		VDIVPS(r[by], r[0], r[0])
		VXORPS(r[minus], r[0], r[1])
		VMOVUPS(r[1], Mem{Base: dst})
		for i := range 2 {
			at := Mem{Base: squares, Disp: s.bytes() * i}
			half := halfOf(s.vectors, i)
			VCVTPS2PD(half, r[3])
			VMULPD(r[3], r[3], r[3])
			VADDPD(at, r[3], r[3])
			VMOVUPD(r[3], at)
		}
	})
	end()
}

// halfOf moves half i of register 0 to the low half of register 2 if it is not there already, and returns it.
func halfOf(v vectors, i int) reg.VecPhysical {
	switch {
	case v.lanes == 16 && i == 0:
		return y[0]
	case v.lanes == 16:
		VEXTRACTF64X4(Imm(1), z[0], y[2])
		return y[2]
	case i == 0:
		return x[0]
	}
	VEXTRACTF128(Imm(1), y[0], x[2])
	return x[2]
}
