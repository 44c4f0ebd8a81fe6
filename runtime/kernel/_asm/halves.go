package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// halves emits halfDots for 32 rows: eight registers of four sums each, which cover the latency of six instructions that depend on each other.
func halves() {
	double := func(name string, bits uint64) Mem {
		m := GLOBL(name, RODATA|NOPTR)
		for i := range 4 {
			DATA(8*i, U64(bits))
		}
		return m
	}
	exponent := double("halfExponents", 0x7ff<<52)
	lowest := double("halfLowestPower", math.Float64bits(0x1p-14))
	shift := double("halfShiftFactor", math.Float64bits(0x1.8p42))

	const sums = 8
	begin("halfDotsAVX2", "(dst *float32, high *float64, x *float32, w *float64, n int)")
	dst, high, px, pw, n := param("dst"), param("high"), param("x"), param("w"), param("n")
	for i := range sums + 1 {
		VPXOR(y[i], y[i], y[i])
	}
	const most, from, power, mask, least, factor = sums, 9, 10, 12, 13, 14
	VMOVUPD(exponent, y[mask])
	VMOVUPD(lowest, y[least])
	VMOVUPD(shift, y[factor])
	Label("loop")
	VCVTSS2SD(Mem{Base: px}, x[from], x[from])
	VBROADCASTSD(x[from], y[from])
	for i := range sums {
		VFMADD231PD(Mem{Base: pw, Disp: 32 * i}, y[from], y[i])
	}
	for i := range sums {
		p := y[power+i%2]
		VANDPD(y[mask], y[i], p)
		VMAXPD(p, y[most], y[most])
		VMAXPD(y[least], p, p)
		VMULPD(y[factor], p, p)
		VADDPD(p, y[i], y[i])
		VSUBPD(p, y[i], y[i])
	}
	ADDQ(U32(4), px)
	ADDQ(U32(32*sums), pw)
	DECQ(n)
	JNZ(LabelRef("loop"))
	for i := range sums {
		VCVTPD2PSY(y[i], x[i])
		VMOVUPS(x[i], Mem{Base: dst, Disp: 16 * i})
	}
	VMOVUPD(y[most], Mem{Base: high})
	end()
}
