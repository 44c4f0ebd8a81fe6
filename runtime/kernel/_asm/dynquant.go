package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The layout of int8Terms and rowTerm in package kernel.
const (
	termLift   = 0
	termScale  = 64
	termOffset = 128
	termSize   = 320

	rowScale = 0
	rowShift = 4
	rowSum   = 8
	rowLift  = 12
	rowSize  = 16
)

func dynquant() {
	nibble := words("nibbles", repeat(0x0f0f0f0f, 8)...)
	one := words("ones", repeat(0x00010001, 8)...)
	sixteen := words("sixteens", repeat(0x00100010, 8)...)
	for _, tokens := range []int{1, 4} {
		for _, bytes := range []bool{false, true} {
			int8VNNI(tokens, bytes)
			int8AVX2(tokens, bytes, nibble, one, sixteen)
		}
	}
}

// int8Frame emits the loop over blocks. step computes the sums of a block: it has to move w and x over the block's
// groups of four columns.
type int8Frame struct {
	tokens, vectors  int // vectors of outputs a token
	bytes            bool
	y, terms, w, sum reg.GPVirtual
	groups, left     reg.GPVirtual
	x, rowTerms      rows
}

func newInt8Frame(name, tier string, tokens, vectors int, bytes bool) *int8Frame {
	kind := "Nibbles"
	if bytes {
		kind = "Bytes"
	}
	begin(fmt.Sprintf("%s%s%d%s", name, kind, tokens, tier),
		"(y *float32, terms *int32, w *byte, x *int8, rows *byte, cols int, blocks int, n int, groups int, sum int)")
	f := &int8Frame{tokens: tokens, vectors: vectors, bytes: bytes,
		y: param("y"), terms: param("terms"), w: param("w"), sum: param("sum"), groups: param("groups"), left: param("n")}
	f.x = newRows(param("x"), param("cols"), tokens)
	stride := param("blocks")
	SHLQ(U8(4), stride)
	f.rowTerms = newRows(param("rows"), stride, tokens)
	return f
}

// next moves to the next block.
func (f *int8Frame) next(loop string) {
	ADDQ(U32(termSize), f.terms)
	f.rowTerms.advance(rowSize)
	DECQ(f.left)
	JNZ(LabelRef(loop))
}

func int8VNNI(tokens int, bytes bool) {
	f := newInt8Frame("int8", "VNNI", tokens, 1, bytes)
	sum := func(t int) reg.VecPhysical { return z[8+t] }
	for t := range tokens {
		VMOVUPS(Mem{Base: f.y, Disp: 64 * t}, z[t])
	}
	Label("block")
	for t := range tokens {
		VMOVDQU32(Mem{Base: f.terms, Disp: termLift}, sum(t))
		if bytes {
			VPSUBD_BCST(f.rowTerms.at(t, rowLift), sum(t), sum(t))
		}
	}
	left := GP64()
	MOVQ(f.groups, left)
	SHRQ(U8(1), left)
	JZ(LabelRef("odd"))
	if tokens == 1 {
		VPXORD(z[12], z[12], z[12]) // a second chain
	}
	Label("pair")
	for g := range 2 {
		VMOVDQU32(Mem{Base: f.w, Disp: 64 * g}, z[16+g])
		for t := range tokens {
			to := sum(t)
			if tokens == 1 && g == 1 {
				to = z[12]
			}
			VPDPBUSD_BCST(f.x.at(t, 4*g), z[16+g], to)
		}
	}
	ADDQ(U32(128), f.w)
	f.x.advance(8)
	DECQ(left)
	JNZ(LabelRef("pair"))
	if tokens == 1 {
		VPADDD(z[12], sum(0), sum(0))
	}
	Label("odd")
	TESTQ(U32(1), f.groups)
	JZ(LabelRef("scale"))
	VMOVDQU32(Mem{Base: f.w}, z[16])
	for t := range tokens {
		VPDPBUSD_BCST(f.x.at(t, 0), z[16], sum(t))
	}
	ADDQ(Imm(64), f.w)
	f.x.advance(4)
	Label("scale")
	VMOVUPS(Mem{Base: f.terms, Disp: termScale}, z[16])
	VMOVUPS(Mem{Base: f.terms, Disp: termOffset}, z[17])
	VMOVUPS(Mem{Base: f.terms, Index: f.sum, Scale: 1}, z[18])
	for t := range tokens {
		s := sum(t)
		VCVTDQ2PS(s, s)
		VMULPS(z[16], s, s)
		VMULPS_BCST(f.rowTerms.at(t, rowScale), s, s)
		VMULPS_BCST(f.rowTerms.at(t, rowShift), z[18], z[20+t])
		VMULPS_BCST(f.rowTerms.at(t, rowSum), z[17], z[24+t])
		VADDPS(z[20+t], s, s)
		VADDPS(z[24+t], s, s)
		VADDPS(s, z[t], z[t])
	}
	f.next("block")
	for t := range tokens {
		VMOVUPS(z[t], Mem{Base: f.y, Disp: 64 * t})
	}
	end()
}

// int8AVX2 has eight outputs for several tokens and sixteen for one. Products of codes 0..15, of which eight fit an
// int16, are widened every 32 columns; a code of eight bits is two of four.
func int8AVX2(tokens int, bytes bool, nibble, one, sixteen Mem) {
	vectors := 1
	if tokens == 1 {
		vectors = 2
	}
	f := newInt8Frame("int8", "AVX2", tokens, vectors, bytes)
	n := tokens * vectors // 1 x 2 or 4 x 1
	low, high, sum := y[:n], y[n:2*n], y[8:8+n]
	wl, wh, xt, p := y[12], y[13], y[14], y[15]
	Label("block")
	for t := range tokens {
		for v := range vectors {
			VMOVDQU(Mem{Base: f.terms, Disp: termLift + 32*v}, sum[t*vectors+v])
		}
		if bytes {
			VPBROADCASTD(f.rowTerms.at(t, rowLift), p)
			for v := range vectors {
				VPSUBD(p, sum[t*vectors+v], sum[t*vectors+v])
			}
		}
	}
	left, inner := GP64(), GP64()
	MOVQ(f.groups, left)
	Label("narrow")
	for i := range n {
		VPXOR(low[i], low[i], low[i])
		if bytes {
			VPXOR(high[i], high[i], high[i])
		}
	}
	MOVQ(U32(8), inner)
	CMPQ(left, inner)
	CMOVQLT(left, inner)
	SUBQ(inner, left)
	Label("group")
	for v := range vectors {
		VMOVDQU(Mem{Base: f.w, Disp: 32 * v}, wl)
		if bytes {
			VPSRLW(Imm(4), wl, wh)
			VPAND(nibble, wl, wl)
			VPAND(nibble, wh, wh)
		}
		for t := range tokens {
			i := t*vectors + v
			VPBROADCASTD(f.x.at(t, 0), xt)
			VPMADDUBSW(xt, wl, p)
			VPADDW(p, low[i], low[i])
			if bytes {
				VPMADDUBSW(xt, wh, p)
				VPADDW(p, high[i], high[i])
			}
		}
	}
	ADDQ(Imm(64), f.w)
	f.x.advance(4)
	DECQ(inner)
	JNZ(LabelRef("group"))
	for i := range n {
		VPMADDWD(one, low[i], p)
		VPADDD(p, sum[i], sum[i])
		if bytes {
			VPMADDWD(sixteen, high[i], p)
			VPADDD(p, sum[i], sum[i])
		}
	}
	TESTQ(left, left)
	JNZ(LabelRef("narrow"))
	for v := range vectors {
		VMOVUPS(Mem{Base: f.terms, Disp: termScale + 32*v}, y[0])
		VMOVUPS(Mem{Base: f.terms, Disp: termOffset + 32*v}, y[1])
		VMOVUPS(Mem{Base: f.terms, Index: f.sum, Scale: 1, Disp: 32 * v}, y[2])
		for t := range tokens {
			s := sum[t*vectors+v]
			VCVTDQ2PS(s, s)
			VMULPS(y[0], s, s)
			for _, factor := range []struct {
				at int
				by reg.VecPhysical
			}{{rowShift, y[2]}, {rowSum, y[1]}} {
				if factor.at == rowShift {
					VBROADCASTSS(f.rowTerms.at(t, rowScale), p)
					VMULPS(p, s, s)
				}
				VBROADCASTSS(f.rowTerms.at(t, factor.at), p)
				VMULPS(p, factor.by, p)
				VADDPS(p, s, s)
			}
			at := Mem{Base: f.y, Disp: 64*t + 32*v}
			VADDPS(at, s, s)
			VMOVUPS(s, at)
		}
	}
	f.next("block")
	end()
}
