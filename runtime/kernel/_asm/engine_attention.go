package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func attention() {
	c := newAttentionConstants()
	for _, isa := range []attentionISA{
		{name: "FMA", v: y, half: x, bytes: 32, lanes: 3, columns: 4},
		{name: "512", v: z, half: y, bytes: 64, lanes: 2, columns: 8},
	} {
		isa.product()
		isa.laneWeights(c)
		for heads := 1; heads <= 3; heads++ {
			isa.quad(heads)
		}
		if isa.bytes == 32 {
			isa.rowWeights(c)
		}
	}
	rowSums()
	transpose(true)
	transpose(false)
}

// attentionISA is a width of vectors and the tile that fits into its registers: lanes vectors of queries, a power of two
// of columns.
type attentionISA struct {
	name                  string
	v, half               []reg.VecPhysical
	bytes, lanes, columns int
}

func (s attentionISA) wide() bool { return s.bytes == 64 }

// product sums products of all lanes with columns of tiles, ascending, fused: dst is [8*groups][lanes], x [n][lanes].
func (s attentionISA) product() {
	begin("laneProduct"+s.name, "(dst *float32, x *float32, tiles *float32, n int, groups int, stride int, scale float32, factors *float32)")
	dst, xs, tile, n, left, stride, factors := param("dst"), param("x"), param("tiles"), param("n"), param("groups"), param("stride"), param("factors")
	row := s.lanes * s.bytes
	// The next tile begins stride behind this one's first column.
	SHLQ(U8(2), stride)
	SUBQ(U8(64), stride)
	for i := 8 / s.columns; i > 1; i /= 2 {
		SHLQ(U8(1), left)
	}
	index := GP64()
	XORQ(index, index)
	in, broadcast := s.v[s.lanes*s.columns:][:s.lanes], s.v[s.lanes*(s.columns+1):]
	acc := func(c, l int) reg.VecPhysical { return s.v[c*s.lanes+l] }
	Label("group")
	for c := range s.columns {
		for l := range s.lanes {
			zero(acc(c, l))
		}
	}
	px, pt, k := GP64(), GP64(), GP64()
	MOVQ(xs, px)
	MOVQ(tile, pt)
	MOVQ(n, k)
	TESTQ(k, k)
	JZ(LabelRef("summed"))
	Label("term")
	for l, r := range in {
		VMOVUPS(Mem{Base: px, Disp: l * s.bytes}, r)
	}
	for c := range s.columns {
		b := broadcast[c%min(len(broadcast), s.columns)]
		VBROADCASTSS(Mem{Base: pt, Disp: 4 * c}, b)
		for l, r := range in {
			VFMADD231PS(b, r, acc(c, l))
		}
	}
	ADDQ(Imm(uint64(row)), px)
	ADDQ(Imm(64), pt)
	DECQ(k)
	JNZ(LabelRef("term"))
	Label("summed")
	TESTQ(factors, factors)
	JZ(LabelRef("scaled"))
	for l, r := range in {
		VMOVUPS(Mem{Base: factors, Disp: l * s.bytes}, r)
	}
	for c := range s.columns {
		for l, r := range in {
			at := Mem{Base: dst, Disp: c*row + l*s.bytes}
			VMULPS(at, r, broadcast[0])
			VADDPS(broadcast[0], acc(c, l), acc(c, l))
			VMOVUPS(acc(c, l), at)
		}
	}
	JMP(LabelRef("next"))
	Label("scaled")
	VBROADCASTSS(NewParamAddr("scale", 48), in[0])
	for c := range s.columns {
		for l := range s.lanes {
			VMULPS(in[0], acc(c, l), acc(c, l))
			VMOVUPS(acc(c, l), Mem{Base: dst, Disp: c*row + l*s.bytes})
		}
	}
	Label("next")
	ADDQ(U32(uint32(s.columns*row)), dst)
	ADDQ(Imm(uint64(4*s.columns)), tile)
	INCQ(index)
	TESTQ(U32(uint32(16/s.columns-1)), index)
	JNZ(LabelRef("same"))
	ADDQ(stride, tile)
	Label("same")
	DECQ(left)
	JNZ(LabelRef("group"))
	end()
}

func zero(r reg.VecPhysical) {
	if r.Size() == 64 {
		VPXORD(r, r, r)
		return
	}
	VXORPS(r, r, r)
}

// quad sums products of rows of x with the columns of tiles in four sums, with two vectors of columns where the
// registers allow.
func (s attentionISA) quad(heads int) {
	begin(fmt.Sprintf("quadProduct%d%s", heads, s.name),
		"(dst *float32, x *float32, tiles *float32, n int, count int, stride int, dstStride int, xStride int, scale float32, factors *float32, next *float32)")
	tile, next, count, stride := param("tiles"), param("next"), param("count"), param("stride")
	dstStride, xStride := param("dstStride"), param("xStride")
	SHLQ(U8(2), stride)
	SHLQ(U8(2), dstStride)
	SHLQ(U8(2), xStride)
	dst, xs := newRows(param("dst"), dstStride, heads), newRows(param("x"), xStride, heads)
	// A vector of 512 bits is a tile's row, and two come from two tiles; two of 256 bits are one.
	vectors := 2
	if !s.wide() && heads > 1 {
		vectors = 1
	}
	group := func(name string, vectors int, at func(base reg.GPVirtual, v, disp int) Mem, out func(h, v int) Mem) {
		acc := func(h, v, l int) reg.VecPhysical { return s.v[(h*vectors+v)*4+l] }
		in, b := s.v[heads*vectors*4:][:vectors], s.v[heads*vectors*4+vectors]
		for i := range heads * vectors * 4 {
			zero(s.v[i])
		}
		row, quads, rest := GP64(), GP64(), GP64()
		px := rows{base: GP64(), stride: xStride}
		MOVQ(xs.base, px.base)
		MOVQ(tile, row)
		Load(Param("n"), quads)
		MOVQ(quads, rest)
		step := func(l, i int) {
			for v := range vectors {
				VMOVUPS(at(row, v, 64*i), in[v])
			}
			for v := 0; v < vectors*s.bytes; v += 64 {
				PREFETCHT0(Mem{Base: next, Disp: (i*vectors*s.bytes + v)})
			}
			for h := range heads {
				VBROADCASTSS(px.at(h, 4*i), b)
				for v := range vectors {
					VFMADD231PS(b, in[v], acc(h, v, l))
				}
			}
		}
		SHRQ(U8(2), quads)
		JZ(LabelRef(name + "quads"))
		Label(name + "loop")
		for l := range 4 {
			step(l, l)
		}
		ADDQ(Imm(16), px.base)
		ADDQ(U32(256), row)
		ADDQ(U32(uint32(4*vectors*s.bytes)), next)
		DECQ(quads)
		JNZ(LabelRef(name + "loop"))
		Label(name + "quads")
		for h := range heads {
			for v := range vectors {
				VADDPS(acc(h, v, 2), acc(h, v, 0), acc(h, v, 0))
				VADDPS(acc(h, v, 3), acc(h, v, 1), acc(h, v, 1))
				VADDPS(acc(h, v, 1), acc(h, v, 0), acc(h, v, 0))
			}
		}
		ANDQ(Imm(3), rest)
		JZ(LabelRef(name + "summed"))
		Label(name + "rest")
		step(0, 0)
		ADDQ(Imm(4), px.base)
		ADDQ(Imm(64), row)
		DECQ(rest)
		JNZ(LabelRef(name + "rest"))
		Label(name + "summed")
		factors := param("factors")
		TESTQ(factors, factors)
		JZ(LabelRef(name + "scaled"))
		for h := range heads {
			VBROADCASTSS(Mem{Base: factors, Disp: 4 * h}, b)
			for v := range vectors {
				VMULPS(out(h, v), b, in[0])
				VADDPS(in[0], acc(h, v, 0), acc(h, v, 0))
				VMOVUPS(acc(h, v, 0), out(h, v))
			}
		}
		JMP(LabelRef(name + "done"))
		Label(name + "scaled")
		VBROADCASTSS(NewParamAddr("scale", 64), b)
		for h := range heads {
			for v := range vectors {
				VMULPS(b, acc(h, v, 0), acc(h, v, 0))
				VMOVUPS(acc(h, v, 0), out(h, v))
			}
		}
		Label(name + "done")
	}
	within := func(base reg.GPVirtual, v, disp int) Mem { return Mem{Base: base, Disp: disp + v*s.bytes} }
	inDst := func(h, v int) Mem { return dst.at(h, v*s.bytes) }
	if s.wide() {
		Label("two")
		CMPQ(count, Imm(2))
		JLT(LabelRef("one"))
		group("two", 2, func(base reg.GPVirtual, v, disp int) Mem {
			m := Mem{Base: base, Disp: disp}
			if v == 1 {
				m.Index, m.Scale = stride, 1
			}
			return m
		}, inDst)
		ADDQ(U32(128), dst.base)
		LEAQ(Mem{Base: tile, Index: stride, Scale: 2}, tile)
		SUBQ(Imm(2), count)
		JMP(LabelRef("two"))
		Label("one")
		TESTQ(count, count)
		JZ(LabelRef("end"))
		group("one", 1, within, inDst)
		Label("end")
		end()
		return
	}
	Label("tile")
	for v := 0; v < 2; v += vectors {
		group(fmt.Sprintf("half%d", v), vectors, within, inDst)
		ADDQ(Imm(uint64(32*vectors)), dst.base)
		ADDQ(Imm(uint64(32*vectors)), tile)
	}
	SUBQ(Imm(64), tile)
	ADDQ(stride, tile)
	DECQ(count)
	JNZ(LabelRef("tile"))
	end()
}

// attentionConstants are 64 bytes each.
type attentionConstants struct {
	low, invLn2, ln2, shift, quarter, half, one, bias Mem
	terms                                             []Mem
	lowest, block, eights, ones                       Mem
	dInvLn2, dShift, dC3, dC2, dC1, dOne, index       Mem
	roots, mask                                       Mem
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
	c.mask = words("attnMask", append(repeat(1<<32-1, 8), repeat(0, 8)...)...)
	return c
}

// exps is engineExp of package kernel for x <= 0: t becomes the result. k and p are lost.
func (s attentionISA) exps(c attentionConstants, t, k, p reg.VecPhysical) {
	VMAXPS(c.low, t, t)
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

// laneWeights turns scores [n][lanes] into weights. A lane sees the keys before seen; those behind weigh 0.
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
	behind := func() { // of those that the lane sees, the ones behind the last group of eight
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

// transpose moves eight rows of 4*groups elements to columns that lie stride elements apart, or back. Row r begins at
// element offsets[r].
func transpose(gather bool) {
	name, signature, rowsAt, columnsAt := "scatterColumnsAVX2", "(dst *float32, src *float32, offsets *[8]int, stride int, groups int)", "dst", "src"
	if gather {
		name, rowsAt, columnsAt = "gatherColumnsAVX2", "src", "dst"
	}
	begin(name, signature)
	base, offsets, stride, groups := param(rowsAt), param("offsets"), param("stride"), param("groups")
	var row [8]reg.GPVirtual
	for r := range row {
		row[r] = GP64()
		MOVQ(Mem{Base: offsets, Disp: 8 * r}, row[r])
		LEAQ(Mem{Base: base, Index: row[r], Scale: 4}, row[r])
	}
	SHLQ(U8(2), stride)
	columns := newRows(param(columnsAt), stride, 4)
	in, mid, out := y[0:4], y[4:8], y[8:12]
	Label("loop")
	if gather {
		for r := range in {
			VMOVUPS(Mem{Base: row[r]}, x[r])
			VINSERTF128(Imm(1), Mem{Base: row[r+4]}, in[r], in[r])
		}
	} else {
		for c := range in {
			VMOVUPS(columns.at(c, 0), in[c])
		}
	}
	for i := range 2 {
		VUNPCKLPS(in[2*i+1], in[2*i], mid[2*i])
		VUNPCKHPS(in[2*i+1], in[2*i], mid[2*i+1])
	}
	for i := range 2 {
		VUNPCKLPD(mid[2+i], mid[i], out[2*i])
		VUNPCKHPD(mid[2+i], mid[i], out[2*i+1])
	}
	if gather {
		for c := range out {
			VMOVUPS(out[c], columns.at(c, 0))
		}
	} else {
		for r := range out {
			VMOVUPS(x[8+r], Mem{Base: row[r]})
			VEXTRACTF128(Imm(1), out[r], Mem{Base: row[r+4]})
		}
	}
	for _, r := range row {
		ADDQ(Imm(16), r)
	}
	LEAQ(Mem{Base: columns.base, Index: stride, Scale: 4}, columns.base)
	DECQ(groups)
	JNZ(LabelRef("loop"))
	end()
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
