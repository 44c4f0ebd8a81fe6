package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// convert emits conversions of n elements, a multiple of eight and not 0.
func convert() {
	each("bf16ToF32AVX2", "(dst *float32, src *byte, n int)", 32, 16, func(dst, src reg.GPVirtual) {
		VPMOVZXWD(Mem{Base: src}, y[0])
		VPSLLD(Imm(16), y[0], y[0])
		VMOVDQU(y[0], Mem{Base: dst})
	})
	each("f16ToF32F16C", "(dst *float32, src *byte, n int)", 32, 16, func(dst, src reg.GPVirtual) {
		VCVTPH2PS(Mem{Base: src}, y[0])
		VMOVUPS(y[0], Mem{Base: dst})
	})
	each("f32ToF16F16C", "(dst *byte, src *float32, n int)", 16, 32, func(dst, src reg.GPVirtual) {
		VMOVUPS(Mem{Base: src}, y[0])
		VCVTPS2PH(Imm(0), y[0], x[0]) // to nearest, ties to even
		VMOVDQU(x[0], Mem{Base: dst})
	})
}

func each(name, signature string, dstBytes, srcBytes uint64, body func(dst, src reg.GPVirtual)) {
	begin(name, signature)
	dst, src, n := param("dst"), param("src"), param("n")
	Label("loop")
	body(dst, src)
	ADDQ(Imm(dstBytes), dst)
	ADDQ(Imm(srcBytes), src)
	SUBQ(Imm(8), n)
	JNZ(LabelRef("loop"))
	end()
}
