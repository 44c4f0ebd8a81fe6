package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gridSearch emits the passes of a search for the best grid of a block: every lane is a grid, and values are broadcast.
func gridSearch() {
	round := floats("round", round32)
	for _, v := range []vectors{avx2, avx512} {
		gridSums(v, round)
		gridErrors(v, round)
	}
}

// gridPass is what both passes share: n values over two registers of grids.
type gridPass struct {
	v                  vectors
	src, weight, n     reg.GPVirtual
	least, most, magic reg.VecPhysical
}

func newGridPass(v vectors, round Mem) gridPass {
	p := gridPass{v: v, src: param("x"), weight: param("importance"), n: param("n"), least: v.reg[13], most: v.reg[14], magic: v.reg[15]}
	VBROADCASTSS(argument("least"), p.least)
	VBROADCASTSS(argument("most"), p.most)
	VMOVUPS(round, p.magic)
	return p
}

// terms loads a term of the two registers of grids.
func (p gridPass) terms(name string, to ...reg.VecPhysical) {
	at := param(name)
	for i, r := range to {
		VMOVUPS(Mem{Base: at, Disp: p.v.bytes() * i}, r)
	}
}

// loop emits the loop over values.
func (p gridPass) loop(body func(value, weight Mem)) {
	Label("loop")
	body(Mem{Base: p.src}, Mem{Base: p.weight})
	ADDQ(Imm(4), p.src)
	ADDQ(Imm(4), p.weight)
	DECQ(p.n)
	JNZ(LabelRef("loop"))
}

// code turns quotients into codes.
func (p gridPass) code(q reg.VecPhysical) {
	VMAXPS(p.least, q, q)
	VMINPS(p.most, q, q)
	VADDPS(p.magic, q, q)
	VSUBPS(p.magic, q, q)
}

// store writes the sums one after the other.
func (p gridPass) store(sums ...reg.VecPhysical) {
	to := param("sums")
	for i, r := range sums {
		VMOVUPS(r, Mem{Base: to, Disp: p.v.bytes() * i})
	}
	end()
}

// zeroed clears registers.
func zeroed(r ...reg.VecPhysical) {
	for _, r := range r {
		if reg.Z0.Size() == r.Size() {
			VPXORD(r, r, r)
		} else {
			VPXOR(r, r, r)
		}
	}
}

func gridSums(v vectors, round Mem) {
	begin("gridSums"+v.tier, "(sums *float32, x *float32, importance *float32, zero *float32, inverse *float32, n int, least float32, most float32)")
	p := newGridPass(v, round)
	r := v.reg
	zero, inverse := r[0:2], r[2:4]
	p.terms("zero", zero...)
	p.terms("inverse", inverse...)
	sums := [3][]reg.VecPhysical{r[4:6], r[6:8], r[8:10]}
	zeroed(r[4:10]...)
	q, t, value := r[10], r[11], r[12]
	p.loop(func(x, weight Mem) {
		VBROADCASTSS(x, value)
		for i := range 2 {
			VBROADCASTSS(weight, t)
			VSUBPS(zero[i], value, q)
			VMULPS(inverse[i], q, q)
			p.code(q)
			VMULPS(q, t, t)
			VADDPS(t, sums[0][i], sums[0][i])
			VMULPS(t, q, q)
			VADDPS(q, sums[1][i], sums[1][i])
			VMULPS(value, t, t)
			VADDPS(t, sums[2][i], sums[2][i])
		}
	})
	p.store(r[4:10]...)
}

func gridErrors(v vectors, round Mem) {
	begin("gridErrors"+v.tier,
		"(sums *float32, x *float32, importance *float32, zero *float32, scale *float32, inverse *float32, n int, least float32, most float32)")
	p := newGridPass(v, round)
	r := v.reg
	zero, inverse, scale, sums := r[0:2], r[2:4], r[4:6], r[6:8]
	p.terms("zero", zero...)
	p.terms("inverse", inverse...)
	p.terms("scale", scale...)
	zeroed(sums...)
	q, t, value := r[8], r[9], r[10]
	p.loop(func(x, weight Mem) {
		VBROADCASTSS(x, value)
		for i := range 2 {
			VSUBPS(zero[i], value, t)
			VMULPS(inverse[i], t, q)
			p.code(q)
			VMULPS(scale[i], q, q)
			VSUBPS(q, t, t)
			VBROADCASTSS(weight, q)
			VMULPS(t, q, q)
			VMULPS(t, q, q)
			VADDPS(q, sums[i], sums[i])
		}
	})
	p.store(sums...)
}
