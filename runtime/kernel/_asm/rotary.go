package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// rotate turns heads > 0 heads that lie dim elements apart; half is a multiple of eight and not 0.
func rotate(v vectors) {
	begin("rotate"+v.tier, "(dst *float32, x *float32, cos *float32, sin *float32, half int, heads int, dim int)")
	dst, px, cos, sin, size, heads, dim := param("dst"), param("x"), param("cos"), param("sin"), param("half"), param("heads"), param("dim")
	SHLQ(U8(2), size)
	SHLQ(U8(2), dim)
	dst2, px2, cos2, sin2, at, left := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: dst, Index: size, Scale: 1}, dst2)
	LEAQ(Mem{Base: px, Index: size, Scale: 1}, px2)
	LEAQ(Mem{Base: cos, Index: size, Scale: 1}, cos2)
	LEAQ(Mem{Base: sin, Index: size, Scale: 1}, sin2)
	Label("head")
	XORQ(at, at)
	MOVQ(size, left)
	for i, s := range v.steps(1) {
		loop := fmt.Sprintf("loop%d", i)
		a, b, c, d, e, f := s.reg[0], s.reg[1], s.reg[2], s.reg[3], s.reg[4], s.reg[5]
		Label(loop)
		CMPQ(left, U32(s.bytes()))
		JLT(LabelRef(loop + "done"))
		VMOVUPS(Mem{Base: px, Index: at, Scale: 1}, a)
		VMOVUPS(Mem{Base: px2, Index: at, Scale: 1}, b)
		VMULPS(Mem{Base: cos, Index: at, Scale: 1}, a, c)
		VMULPS(Mem{Base: sin, Index: at, Scale: 1}, b, d)
		VMULPS(Mem{Base: cos2, Index: at, Scale: 1}, b, e)
		VMULPS(Mem{Base: sin2, Index: at, Scale: 1}, a, f)
		VSUBPS(d, c, c)
		VADDPS(f, e, e)
		VMOVUPS(c, Mem{Base: dst, Index: at, Scale: 1})
		VMOVUPS(e, Mem{Base: dst2, Index: at, Scale: 1})
		ADDQ(U32(s.bytes()), at)
		SUBQ(U32(s.bytes()), left)
		JMP(LabelRef(loop))
		Label(loop + "done")
	}
	ADDQ(dim, px)
	ADDQ(dim, px2)
	ADDQ(dim, dst)
	ADDQ(dim, dst2)
	DECQ(heads)
	JNZ(LabelRef("head"))
	end()
}
