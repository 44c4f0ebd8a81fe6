package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// laneWeights turns scores [n][lanes] into weights. A lane sees the keys before seen; those after weigh 0.
func (s attentionISA) laneWeights(c attentionConstants) {
	begin("laneWeights"+s.name, "(scores *float32, n int, top *float32, sum *float32, factors *float32, seen *int32)")
	scores, top, sum, factors, seenAt := param("scores"), param("top"), param("sum"), param("factors"), param("seen")
	table, left, at, n := GP64(), GP64(), GP64(), param("n")
	LEAQ(c.roots, table)
	MOVQ(U32(uint32(s.lanes)), left)
	v := s.v
	t, k, p, diff, mask := v[0], v[1], v[2], v[3], v[4]
	seen, full, high, j, total, l := v[5], v[6], v[7], v[8], v[9], v[10]
	row := uint64(s.lanes * s.bytes)
	sees := func() { // mask is seen > j
		if s.wide() {
			VPCMPD(Imm(6), j, seen, reg.K1)
		} else {
			VPCMPGTD(j, seen, mask)
		}
	}
	start := func() {
		MOVQ(scores, at)
		Load(Param("n"), n)
		zero(j)
	}
	next := func(label string) {
		VPADDD(c.ones, j, j)
		ADDQ(Imm(row), at)
		DECQ(n)
		JNZ(LabelRef(label))
	}
	Label("lanes")
	if s.wide() {
		VMOVDQU32(Mem{Base: seenAt}, seen)
		VPMINSD(c.block, seen, full)
		VPANDD(c.eights, full, full)
	} else {
		VMOVDQU(Mem{Base: seenAt}, seen)
		VPMINSD(c.block, seen, full)
		VPAND(c.eights, full, full)
	}
	VMOVUPS(Mem{Base: top}, high)
	VMOVUPS(high, diff)
	start()
	Label("max")
	sees()
	if s.wide() {
		VMAXPS(Mem{Base: at}, high, reg.K1, high)
	} else {
		VBLENDVPS(mask, Mem{Base: at}, high, t)
		VMAXPS(t, high, high)
	}
	next("max")
	VMOVUPS(high, Mem{Base: top})
	VSUBPS(high, diff, diff)
	s.expf(c, 3, true, table)
	VMOVUPS(v[1], Mem{Base: factors})
	VMULPS(Mem{Base: sum}, v[1], l)
	zero(total)
	start()
	Label("exp")
	sees()
	VMOVUPS(Mem{Base: at}, t)
	VSUBPS(high, t, t)
	VMOVUPS(t, diff)
	s.exps(c, t, k, p)
	VMOVUPS(t, p)
	behind := func() { // of those that the lane sees, the ones after the last group of eight
		VPCMPGTD(j, full, t)
		VPANDN(mask, t, t)
	}
	some := GP32()
	if s.wide() {
		VPCMPD(Imm(2), j, full, reg.K1, reg.K2)
		KORTESTW(reg.K2, reg.K2)
	} else {
		behind()
		VMOVMSKPS(t, some)
		TESTL(some, some)
	}
	JZ(LabelRef("done"))
	s.expf(c, 3, true, table)
	if s.wide() {
		VMOVUPS(v[1], reg.K2, p)
	} else {
		behind()
		VBLENDVPS(t, v[1], p, p)
	}
	Label("done")
	if s.wide() {
		VMOVAPS_Z(p, reg.K1, p)
	} else {
		VANDPS(mask, p, p)
	}
	VMOVUPS(p, Mem{Base: at})
	VADDPS(p, total, total)
	next("exp")
	VADDPS(total, l, l)
	VMOVUPS(l, Mem{Base: sum})
	for _, r := range []reg.GPVirtual{scores, top, sum, factors, seenAt} {
		ADDQ(Imm(uint64(s.bytes)), r)
	}
	DECQ(left)
	JNZ(LabelRef("lanes"))
	end()
}

// laneSoftmax turns scores [n][lanes] into probabilities: each lane is a row of EngineSoftmaxRows.
func (s attentionISA) laneSoftmax(c attentionConstants) {
	begin("laneSoftmax"+s.name, "(scores *float32, n int)")
	scores, n, table, left, at, count := param("scores"), param("n"), GP64(), GP64(), GP64(), GP64()
	v := s.v
	t, k, p, diff, low, high, total, inv := v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
	row := uint64(s.lanes * s.bytes)
	each := func(label string, step func()) {
		Label(label)
		step()
		ADDQ(Imm(row), at)
		DECQ(count)
		JNZ(LabelRef(label))
	}
	LEAQ(c.roots, table)
	VMOVUPS(c.low, low)
	MOVQ(U32(uint32(s.lanes)), left)
	Label("lanes")
	VMOVUPS(c.least, high)
	zero(total)
	MOVQ(scores, at)
	MOVQ(n, count)
	each("max", func() { VMAXPS(Mem{Base: at}, high, high) })
	MOVQ(scores, at)
	MOVQ(n, count)
	SHRQ(U8(3), count)
	SHLQ(U8(3), count)
	JZ(LabelRef("tail"))
	each("exp", func() {
		VMOVUPS(Mem{Base: at}, t)
		VSUBPS(high, t, t)
		VMAXPS(t, low, t) // keeps a NaN, being the second source
		s.expsWithin(c, t, k, p)
		VMOVUPS(t, Mem{Base: at})
		VADDPS(t, total, total)
	})
	Label("tail")
	MOVQ(n, count)
	ANDQ(Imm(7), count)
	JZ(LabelRef("sum"))
	each("last", func() {
		VMOVUPS(Mem{Base: at}, diff)
		VSUBPS(high, diff, diff)
		s.expf(c, 3, true, table)
		VMOVUPS(v[1], Mem{Base: at})
		VADDPS(v[1], total, total)
	})
	Label("sum")
	VADDPS(c.tiny, total, total)
	VMOVUPS(c.one, inv)
	VDIVPS(total, inv, inv)
	MOVQ(scores, at)
	MOVQ(n, count)
	each("scale", func() {
		VMULPS(Mem{Base: at}, inv, t)
		VMOVUPS(t, Mem{Base: at})
	})
	ADDQ(Imm(uint64(s.bytes)), scores)
	DECQ(left)
	JNZ(LabelRef("lanes"))
	end()
}

// rowWeights turns n scores of one query into weights.
func (s attentionISA) rowWeights(c attentionConstants) {
	begin("rowWeightsFMA", "(scores *float32, n int, top *float32, factor *float32)")
	scores, n, top, factor := param("scores"), param("n"), param("top"), param("factor")
	table, at, left, rest := GP64(), GP64(), GP64(), GP64()
	v := s.v
	t, k, p, diff, mask, old, high, e := v[0], v[1], v[2], v[3], v[4], v[5], v[7], v[1]
	VBROADCASTSS(Mem{Base: top}, old)
	VMOVUPS(old, high)
	MOVQ(n, rest)
	ANDQ(Imm(7), rest)
	LEAQ(c.mask, table)
	NEGQ(rest)
	VMOVUPS(Mem{Base: table, Index: rest, Scale: 4, Disp: 32}, mask)
	start := func() {
		MOVQ(scores, at)
		MOVQ(n, left)
		SHRQ(U8(3), left)
	}
	start()
	JZ(LabelRef("maxrest"))
	Label("max")
	VMAXPS(Mem{Base: at}, high, high)
	ADDQ(Imm(32), at)
	DECQ(left)
	JNZ(LabelRef("max"))
	Label("maxrest")
	TESTQ(rest, rest)
	JZ(LabelRef("across"))
	VMASKMOVPS(Mem{Base: at}, mask, t)
	VBLENDVPS(mask, t, high, t)
	VMAXPS(t, high, high)
	Label("across")
	VEXTRACTF128(Imm(1), high, x[0])
	VMAXPS(x[0], x[7], x[7])
	for _, order := range []uint64{0x4e, 0xb1} {
		VPERMILPS(Imm(order), x[7], x[0])
		VMAXPS(x[0], x[7], x[7])
	}
	VBROADCASTSS(x[7], high)
	VMOVSS(x[7], Mem{Base: top})
	LEAQ(c.roots, table)
	start()
	JZ(LabelRef("exprest"))
	Label("exp")
	VMOVUPS(Mem{Base: at}, t)
	VSUBPS(high, t, t)
	s.exps(c, t, k, p)
	VMOVUPS(t, Mem{Base: at})
	ADDQ(Imm(32), at)
	DECQ(left)
	JNZ(LabelRef("exp"))
	Label("exprest")
	TESTQ(rest, rest)
	JZ(LabelRef("factor"))
	VMASKMOVPS(Mem{Base: at}, mask, diff)
	VSUBPS(high, diff, diff)
	s.expf(c, 3, true, table)
	VMASKMOVPS(e, mask, Mem{Base: at})
	Label("factor")
	VSUBPS(high, old, diff)
	s.expf(c, 3, false, table)
	VMOVSS(x[1], Mem{Base: factor})
	end()
}

// rowSums adds the weights of up to three queries, whose rows are 64 apart, one by one.
func rowSums() {
	begin("rowSumsFMA", "(weights *float32, n int, heads int, sum *float32, factors *float32)")
	weights, n, heads, sum, factors := param("weights"), param("n"), param("heads"), param("sum"), param("factors")
	for c := 1; c <= 3; c++ {
		loop, next := fmt.Sprintf("loop%d", c), fmt.Sprintf("next%d", c)
		CMPQ(heads, Imm(uint64(c)))
		JNE(LabelRef(next))
		for h := range c {
			VXORPS(x[h], x[h], x[h])
		}
		Label(loop)
		for h := range c {
			VADDSS(Mem{Base: weights, Disp: 256 * h}, x[h], x[h])
		}
		ADDQ(Imm(4), weights)
		DECQ(n)
		JNZ(LabelRef(loop))
		for h := range c {
			VMOVSS(Mem{Base: sum, Disp: 4 * h}, x[3])
			VMULSS(Mem{Base: factors, Disp: 4 * h}, x[3], x[3])
			VADDSS(x[h], x[3], x[3])
			VMOVSS(x[3], Mem{Base: sum, Disp: 4 * h})
		}
		RET()
		Label(next)
	}
	RET()
}
