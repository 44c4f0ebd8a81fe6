package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func gemmBF16() {
	gemmTiles512("BF16", func(ops ...Op) {
		vdpbf16ps(ops[0].(reg.VecPhysical), ops[1].(reg.VecPhysical), ops[2].(reg.VecPhysical))
	})
	f32ToBF16()
}

// f32ToBF16 converts n values, a multiple of 16 and not 0.
func f32ToBF16() {
	one, below, quiet := words("bf16One", repeat(1, 8)...), words("bf16Below", repeat(0x7fff, 8)...), words("bf16Quiet", repeat(0x40, 8)...)
	begin("f32ToBF16AVX2", "(dst *uint16, src *float32, n int)")
	dst, src, n := param("dst"), param("src"), param("n")
	Label("loop")
	for i := range 2 {
		v, high, nan := y[i], y[2+i], y[4+i]
		VMOVUPS(Mem{Base: src, Disp: 32 * i}, v)
		VCMPPS(Imm(3), v, v, nan) // unordered
		VPSRLD(Imm(16), v, high)
		VPAND(one, high, y[6+i])
		VPADDD(below, v, v)
		VPADDD(y[6+i], v, v)
		VPSRLD(Imm(16), v, v)
		VPOR(quiet, high, high)
		VBLENDVPS(nan, high, v, v)
	}
	VPACKUSDW(y[1], y[0], y[0])
	VPERMQ(Imm(0xd8), y[0], y[0])
	VMOVDQU(y[0], Mem{Base: dst})
	ADDQ(Imm(64), src)
	ADDQ(Imm(32), dst)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("loop"))
	end()
}

// vdpbf16ps adds to every float32 of sum the products of a pair of bf16, by EVEX.512.F3.0F38.W0 52 /r, which neither avo
// nor Go's assembler has.
func vdpbf16ps(b, a, sum reg.VecPhysical) {
	number := func(r reg.VecPhysical) byte { return byte(r.ID().Index()) }
	d, v, m := number(sum), number(a), number(b)
	inverted := func(r byte, bit, to uint) byte { return (^r >> bit & 1) << to }
	for _, x := range []byte{
		0x62,
		inverted(d, 3, 7) | inverted(m, 4, 6) | inverted(m, 3, 5) | inverted(d, 4, 4) | 2,
		(^v&15)<<3 | 4 | 2,
		2<<5 | inverted(v, 4, 3),
		0x52,
		0xc0 | d&7<<3 | m&7,
	} {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(x)}})
	}
}
