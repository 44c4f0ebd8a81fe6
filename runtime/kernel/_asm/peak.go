package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// peak emits loops of one instruction on registers alone. Their sums are independent: twelve and more in flight cover
// the latency of any multiplier.
func peak() {
	peakLoop("FMAAVX2", y, func(i int) { VFMADD231PS(y[14], y[15], y[i]) })
	peakLoop("FMAAVX512", z, func(i int) { VFMADD231PS(z[30], z[31], z[i]) })
	peakLoop("MADDUBSAVX2", y, func(i int) { VPMADDUBSW(y[14], y[15], y[i]) })
	peakLoop("DPBUSDAVXVNNI", y, func(i int) { vpdpbusd(y[14], y[15], y[i]) })
	peakLoop("DPBUSDAVX512", z, func(i int) { VPDPBUSD(z[30], z[31], z[i]) })
	peakLoop("DPBF16AVX512", z, func(i int) { vdpbf16ps(z[30], z[31], z[i]) })
	peakRead()
}

// peakUnroll is the number of instructions in a turn of a loop; sums divides it for 12 and for 24.
const peakUnroll = 24

func peakLoop(name string, r []reg.VecPhysical, instruction func(sum int)) {
	TEXT("peak"+name, attr.NOSPLIT, "func(turns int)")
	n := param("turns")
	sums := 12
	if len(r) == 32 {
		sums = 24
	}
	for i := range r {
		if len(r) == 32 {
			VPXORD(r[i], r[i], r[i])
		} else {
			VPXOR(r[i], r[i], r[i])
		}
	}
	Label("loop")
	for i := range peakUnroll {
		instruction(i % sums)
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	end()
}

// peakRead loads blocks of 512 bytes, the next page on the way. Prefetches beyond the end do not fault.
func peakRead() {
	begin("peakReadAVX2", "(b *byte, blocks int)")
	b, n := param("b"), param("blocks")
	for i := range 8 {
		VPXOR(y[i], y[i], y[i])
	}
	Label("loop")
	for i := range 8 {
		PREFETCHT0(Mem{Base: b, Disp: 4096 + 64*i})
	}
	for i := range 16 {
		VPADDQ(Mem{Base: b, Disp: 32 * i}, y[i%8], y[i%8])
	}
	ADDQ(U32(512), b)
	DECQ(n)
	JNZ(LabelRef("loop"))
	end()
}
