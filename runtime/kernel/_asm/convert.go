package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// convert emits conversions of n elements, a multiple of eight and not 0.
func convert() {
	const widen, narrow = "(dst *float32, src *byte, n int)", "(dst *byte, src *float32, n int)"
	for _, v := range []vectors{avx2, avx512} {
		v.convert("bf16ToF32", widen, 4, 2, func(dst, src Mem, r reg.VecPhysical) {
			VPMOVZXWD(src, r)
			VPSLLD(Imm(16), r, r)
			VMOVUPS(r, dst)
		})
		v.convert("f16ToF32", widen, 4, 2, func(dst, src Mem, r reg.VecPhysical) {
			VCVTPH2PS(src, r)
			VMOVUPS(r, dst)
		})
		v.convert("f32ToF16", narrow, 2, 4, func(dst, src Mem, r reg.VecPhysical) {
			VMOVUPS(src, r)
			VCVTPS2PH(Imm(0), r, dst) // to nearest, ties to even
		})
	}
}

// convert emits a function in which body converts the elements of one register; they have that many bytes each.
func (v vectors) convert(name, signature string, dstBytes, srcBytes int, body func(dst, src Mem, r reg.VecPhysical)) {
	begin(name+v.tier, signature)
	dst, src, n := param("dst"), param("src"), param("n")
	for i, s := range v.steps(4) {
		loop, size := fmt.Sprintf("loop%d", i), s.lanes*s.unroll
		Label(loop)
		CMPQ(n, U32(size))
		JLT(LabelRef(loop + "done"))
		for u := range s.unroll {
			body(Mem{Base: dst, Disp: u * s.lanes * dstBytes}, Mem{Base: src, Disp: u * s.lanes * srcBytes}, s.reg[u])
		}
		ADDQ(U32(size*dstBytes), dst)
		ADDQ(U32(size*srcBytes), src)
		SUBQ(U32(size), n)
		JMP(LabelRef(loop))
		Label(loop + "done")
	}
	end()
}
