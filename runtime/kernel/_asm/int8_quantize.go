package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// int8Quantize writes the codes of n columns, a multiple of eight, plus 128, and returns their sum. In groups of eight
// columns the odd ones come before the even ones, stride bytes apart.
func int8Quantize(order Mem) {
	flip := words("flips", repeat(0x80808080, 8)...)
	join := words("join", 0, 4, 1, 5, 2, 6, 3, 7)
	least, most := words("least", repeat(0xc3000000, 8)...), words("most", repeat(0x42fe0000, 8)...) // -128, 127
	half, sign := words("half", repeat(0x3f000000, 8)...), words("sign", repeat(0x80000000, 8)...)
	for _, away := range []bool{false, true} {
		name := "int8RoundEvenAVX2"
		if away {
			name = "int8RoundAwayAVX2"
		}
		begin(name, "(dst *byte, x *float32, n int, stride int, quant float32, bias float32) (sum int)")
		dst, src, n, stride := param("dst"), param("x"), param("n"), param("stride")
		quant, bias, sum := y[15], y[14], y[13]
		load := func(name string, to reg.VecPhysical) {
			p, err := Param(name).Resolve()
			if err != nil {
				panic(err)
			}
			VBROADCASTSS(p.Addr, to)
		}
		load("quant", quant)
		load("bias", bias)
		VPXOR(sum, sum, sum)
		VPXOR(y[12], y[12], y[12])
		code := func(at int, v reg.VecPhysical, t reg.VecPhysical) {
			VMULPS(Mem{Base: src, Disp: at}, quant, v)
			VADDPS(bias, v, v)
			if !away {
				VCVTPS2DQ(v, v) // to the nearest, halves to even; packing clamps
				return
			}
			VMAXPS(least, v, v)
			VMINPS(most, v, v)
			VPAND(sign, v, t)
			VPOR(half, t, t)
			VADDPS(t, v, v)
			VCVTTPS2DQ(v, v)
		}
		Label("wide")
		CMPQ(n, Imm(32))
		JLT(LabelRef("narrow"))
		for i := range 4 {
			code(32*i, y[i], y[4+i])
		}
		VPACKSSDW(y[1], y[0], y[0])
		VPACKSSDW(y[3], y[2], y[2])
		VPACKSSWB(y[2], y[0], y[0])
		VMOVDQU(join, y[1])
		VPERMD(y[0], y[1], y[0])
		VPXOR(flip, y[0], y[0])
		VPSHUFB(order, y[0], y[0])
		VPSADBW(y[12], y[0], y[1])
		VPADDQ(y[1], sum, sum)
		ADDQ(U32(128), src)
		SUBQ(Imm(32), n)
		CMPQ(stride, Imm(4))
		JNE(LabelRef("apart"))
		VMOVDQU(y[0], Mem{Base: dst})
		ADDQ(Imm(32), dst)
		JMP(LabelRef("wide"))
		Label("apart")
		VEXTRACTI128(Imm(1), y[0], x[1])
		for i := range 8 {
			if i%4 == 0 {
				VMOVD(x[i/4], Mem{Base: dst})
			} else {
				VPEXTRD(Imm(uint64(i%4)), x[i/4], Mem{Base: dst})
			}
			ADDQ(stride, dst)
		}
		JMP(LabelRef("wide"))
		Label("narrow")
		CMPQ(n, Imm(8))
		JLT(LabelRef("done"))
		code(0, y[0], y[4])
		VEXTRACTI128(Imm(1), y[0], x[1])
		VPACKSSDW(x[1], x[0], x[0])
		VPACKSSWB(x[12], x[0], x[0])
		VPXOR(flip, x[0], x[0])
		VMOVQ(x[0], x[0])
		VPSADBW(x[12], x[0], x[1])
		VPADDQ(y[1], sum, sum)
		VPSHUFB(order, x[0], x[0])
		VMOVD(x[0], Mem{Base: dst})
		VPEXTRD(Imm(1), x[0], Mem{Base: dst, Index: stride, Scale: 1})
		LEAQ(Mem{Base: dst, Index: stride, Scale: 2}, dst)
		ADDQ(Imm(32), src)
		SUBQ(Imm(8), n)
		JMP(LabelRef("narrow"))
		Label("done")
		VEXTRACTI128(Imm(1), sum, x[1])
		VPADDQ(x[1], x[13], x[13])
		VPSHUFD(Imm(0xee), x[13], x[1])
		VPADDQ(x[1], x[13], x[13])
		total := GP64()
		VMOVQ(x[13], total)
		Store(total, Return("sum"))
		end()
	}
}

// int8Spread writes codes in pieces of four bytes, a line of a panel apart, and returns their sum.
func int8Spread(bytes bool, nibble, order Mem) {
	if bytes {
		begin("int8SpreadBytesAVX2", "(dst *byte, codes *byte, n int, half int) (sum int)")
	} else {
		begin("int8SpreadNibblesAVX2", "(dst *byte, codes *byte, n int) (sum int)")
	}
	dst, codes, n := param("dst"), param("codes"), param("n")
	if bytes {
		VMOVQ(param("half"), x[7])
		VPBROADCASTB(x[7], x[7])
	}
	VPXOR(x[5], x[5], x[5])
	VPXOR(x[6], x[6], x[6])
	Label("loop")
	VMOVDQU(Mem{Base: codes}, x[0])
	if bytes {
		VPSADBW(x[6], x[0], x[1])
		VPSUBB(x[7], x[0], x[0])
		VPSHUFB(order, x[0], x[0])
	} else {
		VPSRLW(Imm(4), x[0], x[1])
		VPAND(nibble, x[1], x[1])
		VPAND(nibble, x[0], x[2])
		VPADDB(x[2], x[1], x[1])
		VPSADBW(x[6], x[1], x[1])
	}
	VPADDQ(x[1], x[5], x[5])
	VMOVD(x[0], Mem{Base: dst})
	for i := 1; i < 4; i++ {
		VPEXTRD(Imm(uint64(i)), x[0], Mem{Base: dst, Disp: panelBytes * i})
	}
	ADDQ(Imm(16), codes)
	ADDQ(U32(4*panelBytes), dst)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("loop"))
	VPSHUFD(Imm(0xee), x[5], x[1])
	VPADDQ(x[1], x[5], x[5])
	sum := GP64()
	VMOVQ(x[5], sum)
	Store(sum, Return("sum"))
	end()
}

// int8Range is the smallest and the largest of n elements, a multiple of eight and not 0.
func int8Range() {
	begin("int8RangeAVX2", "(x *float32, n int) (lo float32, hi float32)")
	src, n := param("x"), param("n")
	for i := range 4 {
		VMOVUPS(Mem{Base: src}, y[i])
		VMOVUPS(Mem{Base: src}, y[4+i])
	}
	Label("wide")
	CMPQ(n, Imm(32))
	JLT(LabelRef("narrow"))
	for i := range 4 {
		VMOVUPS(Mem{Base: src, Disp: 32 * i}, y[8])
		VMINPS(y[8], y[i], y[i])
		VMAXPS(y[8], y[4+i], y[4+i])
	}
	ADDQ(U32(128), src)
	SUBQ(Imm(32), n)
	JMP(LabelRef("wide"))
	Label("narrow")
	CMPQ(n, Imm(8))
	JLT(LabelRef("done"))
	VMINPS(Mem{Base: src}, y[0], y[0])
	VMAXPS(Mem{Base: src}, y[4], y[4])
	ADDQ(Imm(32), src)
	SUBQ(Imm(8), n)
	JMP(LabelRef("narrow"))
	Label("done")
	fold := func(i int, op func(a, b, c Op), name string) {
		op(y[i+1], y[i], y[i])
		op(y[i+3], y[i+2], y[i+2])
		op(y[i+2], y[i], y[i])
		VEXTRACTF128(Imm(1), y[i], x[i+1])
		op(x[i+1], x[i], x[i])
		VPSHUFD(Imm(0x4e), x[i], x[i+1])
		op(x[i+1], x[i], x[i])
		VPSHUFD(Imm(0xb1), x[i], x[i+1])
		op(x[i+1], x[i], x[i])
		Store(x[i], Return(name))
	}
	fold(0, func(a, b, c Op) { VMINPS(a, b, c) }, "lo")
	fold(4, func(a, b, c Op) { VMAXPS(a, b, c) }, "hi")
	end()
}
