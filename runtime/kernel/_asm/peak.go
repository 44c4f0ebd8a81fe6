package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
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
	begin("peak"+name, "(turns int)")
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
