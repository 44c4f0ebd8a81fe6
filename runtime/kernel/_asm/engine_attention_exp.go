package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// attentionConstants are 64 bytes each.
type attentionConstants struct {
	low, invLn2, ln2, shift, quarter, half, one, bias Mem
	terms                                             []Mem
	lowest, block, eights, ones                       Mem
	dInvLn2, dShift, dC3, dC2, dC1, dOne, index       Mem
	roots, mask                                       Mem
	least, tiny                                       Mem
}

func newAttentionConstants() (c attentionConstants) {
	single := func(name string, v float32) Mem { return words(name, repeat(math.Float32bits(v), 16)...) }
	integer := func(name string, v uint32) Mem { return words(name, repeat(v, 16)...) }
	double := func(name string, v ...uint64) Mem {
		m := GLOBL(name, RODATA|NOPTR)
		for i, b := range v {
			DATA(8*i, U64(b))
		}
		return m
	}
	eight := func(name string, v float64) Mem {
		b := math.Float64bits(v)
		return double(name, b, b, b, b, b, b, b, b)
	}
	c.low, c.invLn2, c.ln2 = single("attnLow", -87), single("attnInvLn2", 0x1.715476p0), single("attnLn2", 0x1.62e43p-1)
	c.shift, c.quarter = single("attnShift", 3<<22), single("attnQuarter", 0.25)
	c.half, c.one, c.bias = single("attnHalf", 0.5), single("attnOne", 1), integer("attnBias", 127)
	c.terms = []Mem{single("attn120", float32(1)/120), single("attn24", float32(1)/24), single("attn6", float32(1)/6), c.half, c.one, c.one}
	c.lowest, c.block, c.eights, c.ones = single("attnLowest", -0x1.9fe368p6), integer("attnBlock", 64), integer("attnEights", ^uint32(7)), integer("attnOnes", 1)
	c.dInvLn2, c.dShift = eight("attnDInvLn2", 0x1.71547652b82fep+5), eight("attnDShift", 0x1.8p52)
	c.dC3, c.dC2 = eight("attnDC3", 0x1.c6af84b912394p-20), eight("attnDC2", 0x1.ebfce50fac4f3p-13)
	c.dC1, c.dOne = eight("attnDC1", 0x1.62e42ff0c52d6p-6), eight("attnDOne", 1)
	c.index = double("attnIndex", 31, 31, 31, 31, 31, 31, 31, 31)
	var roots []uint64
	for _, v := range expfRoots {
		roots = append(roots, math.Float64bits(v))
	}
	c.roots = double("attnRoots", roots...)
	c.least, c.tiny = single("attnLeast", -math.MaxFloat32), single("attnTiny", 1e-20)
	c.mask = words("attnMask", append(repeat(1<<32-1, 8), repeat(0, 8)...)...)
	return c
}

// exps is engineExp of package kernel for x <= 0: t becomes the result. k and p are lost.
func (s attentionISA) exps(c attentionConstants, t, k, p reg.VecPhysical) {
	VMAXPS(c.low, t, t)
	s.expsWithin(c, t, k, p)
}

// expsWithin is exps for x that are not below the limit, or NaNs, which stay such.
func (s attentionISA) expsWithin(c attentionConstants, t, k, p reg.VecPhysical) {
	VMULPS(c.invLn2, t, k)
	if s.wide() {
		VRNDSCALEPS(Imm(8), k, k)
	} else {
		VADDPS(c.shift, k, k)
		VSUBPS(c.shift, k, k)
	}
	VFNMADD231PS(c.ln2, k, t)
	VMULPS(c.quarter, t, t)
	VMOVUPS(c.terms[0], p)
	for _, term := range c.terms[1:] {
		VFMADD213PS(term, t, p)
	}
	VMULPS(p, p, p)
	VMULPS(p, p, p)
	if s.wide() {
		VSCALEFPS(k, p, t)
		return
	}
	VCVTPS2DQ(k, k)
	VPADDD(c.bias, k, k)
	VPSLLD(Imm(23), k, k)
	VMULPS(p, k, t)
}

// expf is expf of package kernel for x <= 0, for a vector of float32 or its lower half. Registers 0, 1 and 11 to 15 are
// lost, and so is K7; the result is in 1.
func (s attentionISA) expf(c attentionConstants, from int, whole bool, table reg.GPVirtual) {
	d, k, r, p, t := s.v[11], s.v[12], s.v[13], s.v[14], s.v[15]
	half := func(src reg.VecPhysical, out reg.VecPhysical) {
		VCVTPS2PD(src, d)
		VMOVUPD(c.dShift, k)
		VMOVUPD(c.dInvLn2, p)
		VFMADD231PD(p, d, k)
		VSUBPD(c.dShift, k, r)
		VFMSUB213PD(r, p, d)
		at := Mem{Base: table, Index: r, Scale: 8}
		if s.wide() {
			VPANDQ(c.index, k, r)
			KXNORW(reg.K7, reg.K7, reg.K7)
			VGATHERQPD(at, reg.K7, t)
		} else {
			VPAND(c.index, k, r)
			VPCMPEQD(s.v[0], s.v[0], s.v[0])
			VGATHERQPD(s.v[0], at, t)
		}
		VPSUBQ(r, k, k)
		VPSLLQ(Imm(47), k, k)
		VPADDQ(t, k, k)
		VMOVUPD(c.dC3, p)
		VFMADD213PD(c.dC2, d, p)
		VMOVUPD(c.dC1, t)
		VFMADD213PD(c.dOne, d, t)
		VMULPD(d, d, d)
		VFMADD213PD(t, d, p)
		VMULPD(k, p, p)
		if s.wide() {
			VCVTPD2PS(p, out)
		} else {
			VCVTPD2PSY(p, out)
		}
	}
	half(s.half[from], s.half[1])
	if whole {
		if s.wide() {
			VEXTRACTF64X4(Imm(1), s.v[from], s.half[11])
			half(s.half[11], s.half[11])
			VINSERTF64X4(Imm(1), s.half[11], s.v[1], s.v[1])
		} else {
			VEXTRACTF128(Imm(1), s.v[from], s.half[11])
			half(s.half[11], s.half[11])
			VINSERTF128(Imm(1), s.half[11], s.v[1], s.v[1])
		}
	}
	if s.wide() {
		VCMPPS(Imm(5), c.lowest, s.v[from], reg.K7) // not <
		VMOVAPS_Z(s.v[1], reg.K7, s.v[1])
		return
	}
	VCMPPS(Imm(5), c.lowest, s.v[from], s.v[0])
	VANDPS(s.v[0], s.v[1], s.v[1])
}

// expfRoots are 2^(k/32), rounded.
var expfRoots = [32]float64{
	0x1.0000000000000p0, 0x1.059b0d3158574p0, 0x1.0b5586cf9890fp0, 0x1.11301d0125b51p0,
	0x1.172b83c7d517bp0, 0x1.1d4873168b9aap0, 0x1.2387a6e756238p0, 0x1.29e9df51fdee1p0,
	0x1.306fe0a31b715p0, 0x1.371a7373aa9cbp0, 0x1.3dea64c123422p0, 0x1.44e086061892dp0,
	0x1.4bfdad5362a27p0, 0x1.5342b569d4f82p0, 0x1.5ab07dd485429p0, 0x1.6247eb03a5585p0,
	0x1.6a09e667f3bcdp0, 0x1.71f75e8ec5f74p0, 0x1.7a11473eb0187p0, 0x1.82589994cce13p0,
	0x1.8ace5422aa0dbp0, 0x1.93737b0cdc5e5p0, 0x1.9c49182a3f090p0, 0x1.a5503b23e255dp0,
	0x1.ae89f995ad3adp0, 0x1.b7f76f2fb5e47p0, 0x1.c199bdd85529cp0, 0x1.cb720dcef9069p0,
	0x1.d5818dcfba487p0, 0x1.dfc97337b9b5fp0, 0x1.ea4afa2a490dap0, 0x1.f50765b6e4540p0,
}
