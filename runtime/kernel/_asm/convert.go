package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// convert emits conversions of n elements, not 0: a multiple of 8 with AVX2, of 64 with AVX-512.
func convert() {
	const widen, narrow = "(dst *float32, src *byte, n int)", "(dst *byte, src *float32, n int)"
	each("bf16ToF32AVX2", widen, 32, 16, 1, func(dst, src Mem, i int) {
		VPMOVZXWD(src, y[i])
		VPSLLD(Imm(16), y[i], y[i])
		VMOVDQU(y[i], dst)
	})
	each("f16ToF32F16C", widen, 32, 16, 1, func(dst, src Mem, i int) {
		VCVTPH2PS(src, y[i])
		VMOVUPS(y[i], dst)
	})
	each("f32ToF16F16C", narrow, 16, 32, 1, func(dst, src Mem, i int) {
		VMOVUPS(src, y[i])
		VCVTPS2PH(Imm(0), y[i], x[i]) // to nearest, ties to even
		VMOVDQU(x[i], dst)
	})
	each("bf16ToF32AVX512", widen, 64, 32, 4, func(dst, src Mem, i int) {
		VPMOVZXWD(src, z[i])
		VPSLLD(Imm(16), z[i], z[i])
		VMOVDQU32(z[i], dst)
	})
	each("f16ToF32AVX512", widen, 64, 32, 4, func(dst, src Mem, i int) {
		VCVTPH2PS(src, z[i])
		VMOVUPS(z[i], dst)
	})
	each("f32ToF16AVX512", narrow, 32, 64, 4, func(dst, src Mem, i int) {
		VMOVUPS(src, z[i])
		VCVTPS2PH(Imm(0), z[i], y[i])
		VMOVDQU(y[i], dst)
	})
}

// each emits a loop in which body converts one vector; dstBytes and srcBytes are what it writes and reads.
func each(name, signature string, dstBytes, srcBytes, unrolled int, body func(dst, src Mem, i int)) {
	begin(name, signature)
	dst, src, n := param("dst"), param("src"), param("n")
	Label("loop")
	for i := range unrolled {
		body(Mem{Base: dst, Disp: i * dstBytes}, Mem{Base: src, Disp: i * srcBytes}, i)
	}
	elements := unrolled * max(dstBytes, srcBytes) / 4
	ADDQ(U32(unrolled*dstBytes), dst)
	ADDQ(U32(unrolled*srcBytes), src)
	SUBQ(U32(elements), n)
	JNZ(LabelRef("loop"))
	end()
}
