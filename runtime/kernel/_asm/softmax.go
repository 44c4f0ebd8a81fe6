package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// softmax emits Exp of package kernel for four elements: the same operations in the same order.
func softmax() {
	double := func(name string, v float64) Mem {
		b := math.Float64bits(v)
		m := GLOBL(name, RODATA|NOPTR)
		for i := range 4 {
			DATA(8*i, U64(b))
		}
		return m
	}
	const ln2Hi = 0x1.62e42feep-1
	magnitude := double("expsMagnitude", math.Float64frombits(1<<63-1))
	limit, half, one := double("expsLimit", 700), double("expsHalf", 0.5), double("expsOne", 1)
	log2e, hi2, lo2 := double("expsLog2E", math.Log2E), double("expsLn2Hi", ln2Hi), double("expsLn2Lo", math.Ln2-ln2Hi)
	bias := words("expsBias", repeat(1023, 4)...)
	var terms []Mem
	for i, v := range []float64{
		1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
		1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
	} {
		terms = append(terms, double("expsTerm"+string(rune('a'+i)), v))
	}
	begin("expsAVX2", "(x *float64, n int) int")
	px, left := param("x"), param("n")
	n, outside := GP64(), GP32()
	MOVQ(left, n)
	Label("loop")
	CMPQ(left, Imm(4))
	JLT(LabelRef("done"))
	v, k, hi, lo, r, p, t := y[0], y[1], y[2], y[3], y[4], y[5], y[6]
	VMOVUPD(Mem{Base: px}, v)
	VANDPD(magnitude, v, t)
	VCMPPD(Imm(6), limit, t, t) // not <=
	VMOVMSKPD(t, outside)
	TESTL(outside, outside)
	JNZ(LabelRef("done"))
	VMULPD(log2e, v, k)
	VADDPD(half, k, k)
	VROUNDPD(Imm(9), k, k) // down
	VMULPD(hi2, k, hi)
	VSUBPD(hi, v, hi)
	VMULPD(lo2, k, lo)
	VSUBPD(lo, hi, r)
	VSUBPD(r, hi, hi)
	VSUBPD(lo, hi, hi) // what rounding took from r
	VMOVUPD(terms[0], p)
	for _, c := range terms[1:] {
		VMULPD(r, p, p)
		VADDPD(c, p, p)
	}
	VMULPD(r, r, t)
	VMULPD(p, t, t)
	VADDPD(hi, t, t)
	VADDPD(t, r, t)
	VADDPD(one, t, t)
	VCVTPD2DQY(k, x[1])
	VPADDD(bias, x[1], x[1])
	VPMOVZXDQ(x[1], k)
	VPSLLQ(Imm(52), k, k)
	VMULPD(k, t, t)
	VMOVUPD(t, Mem{Base: px})
	ADDQ(Imm(32), px)
	SUBQ(Imm(4), left)
	JMP(LabelRef("loop"))
	Label("done")
	SUBQ(left, n)
	Store(n, ReturnIndex(0))
	end()
}
