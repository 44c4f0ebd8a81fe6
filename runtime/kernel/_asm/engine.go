package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// engine emits exp of eight elements.
func engine() {
	constant := func(name string, v float32) Mem { return words(name, repeat(math.Float32bits(v), 8)...) }
	low, high := constant("expLow", -87), constant("expHigh", 87)
	invLn2, ln2 := constant("expInvLn2", 0x1.715476p0), constant("expLn2", 0x1.62e43p-1)
	shift, quarter := constant("expShift", 3<<22), constant("expQuarter", 0.25)
	c5, c4, c3 := constant("exp120", float32(1)/120), constant("exp24", float32(1)/24), constant("exp6", float32(1)/6)
	half, one := constant("expHalf", 0.5), constant("expOne", 1)
	bias := words("expBias", repeat(127, 8)...)
	begin("engineExpsFMA", "(dst *float32, x *float32, n int)")
	dst, src, n := param("dst"), param("x"), param("n")
	for i, m := range []Mem{low, high, invLn2, ln2, shift} {
		VMOVUPS(m, y[8+i])
	}
	Label("loop")
	t, k, p := y[0], y[1], y[2]
	VMOVUPS(Mem{Base: src}, t)
	VMAXPS(t, y[8], t) // keeps a NaN, being the second source
	VMINPS(t, y[9], t)
	VMULPS(y[10], t, k)
	VADDPS(y[12], k, k)
	VSUBPS(y[12], k, k)
	VFNMADD231PS(y[11], k, t)
	VMULPS(quarter, t, t)
	VMOVUPS(c5, p)
	for _, c := range []Mem{c4, c3, half, one, one} {
		VFMADD213PS(c, t, p)
	}
	VMULPS(p, p, p)
	VMULPS(p, p, p)
	VCVTPS2DQ(k, k)
	VPADDD(bias, k, k)
	VPSLLD(Imm(23), k, k)
	VMULPS(p, k, p)
	VMOVUPS(p, Mem{Base: dst})
	ADDQ(Imm(32), src)
	ADDQ(Imm(32), dst)
	SUBQ(Imm(8), n)
	JNZ(LabelRef("loop"))
	end()
}
