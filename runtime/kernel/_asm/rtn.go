package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rtnGroup is the number of elements that the functions below take at once.
const rtnGroup = 16

// rtn emits the passes of rounding to a grid: extremes, codes, packed codes.
func rtn() {
	largest, smallest := words("largest", repeat(0x7fffffff, 16)...), words("smallest", repeat(0x80000000, 16)...)
	extremes("AVX2", y, 2, largest, smallest)
	extremes("AVX512", z, 1, largest, smallest)
	base := words("base", round32)
	gridAVX2(base)
	gridAVX512(base)
	for _, bits := range []int{2, 3, 4, 5, 6} {
		packCodes(bits)
	}
}

// extremes emits a loop over n blocks of a multiple of rtnGroup elements. Integers order the bits of floats once the
// lower 31 of a negative one are flipped.
func extremes(tier string, v []reg.VecPhysical, vectors int, largest, smallest Mem) {
	begin("extremes"+tier, "(lo *float32, hi *float32, x *float32, block int, n int)")
	lo, hi, src, block, n := param("lo"), param("hi"), param("x"), param("block"), param("n")
	order := func(from, to, t reg.VecPhysical) {
		VPSRAD(Imm(31), from, t)
		VPSRLD(Imm(1), t, t)
		if vectors == 1 {
			VPXORD(from, t, to)
		} else {
			VPXOR(from, t, to)
		}
	}
	load := func(m Mem, to reg.VecPhysical) {
		if vectors == 1 {
			VMOVDQU32(m, to)
		} else {
			VMOVDQU(m, to)
		}
	}
	least, most := v[0], v[1]
	first, last := v[2], v[3]
	load(largest, first)
	load(smallest, last)
	left := GP64()
	Label("block")
	MOVQ(block, left)
	VMOVAPS(first, least)
	VMOVAPS(last, most)
	Label("loop")
	for i := range vectors {
		e, t := v[4+2*i], v[5+2*i]
		load(Mem{Base: src, Disp: 64 / vectors * i}, e)
		order(e, e, t)
		VPMINSD(e, least, least)
		VPMAXSD(e, most, most)
	}
	ADDQ(Imm(64), src)
	SUBQ(Imm(rtnGroup), left)
	JNZ(LabelRef("loop"))
	if vectors == 1 {
		VEXTRACTI64X4(Imm(1), least, y[4])
		VEXTRACTI64X4(Imm(1), most, y[5])
		VPMINSD(y[4], y[0], y[0])
		VPMAXSD(y[5], y[1], y[1])
	}
	VEXTRACTI128(Imm(1), y[0], x[4])
	VEXTRACTI128(Imm(1), y[1], x[5])
	VPMINSD(x[4], x[0], x[0])
	VPMAXSD(x[5], x[1], x[1])
	for _, swap := range []uint64{0x4e, 0xb1} {
		VPSHUFD(Imm(swap), x[0], x[4])
		VPSHUFD(Imm(swap), x[1], x[5])
		VPMINSD(x[4], x[0], x[0])
		VPMAXSD(x[5], x[1], x[1])
	}
	for i := range 2 {
		VPSRAD(Imm(31), x[i], x[4])
		VPSRLD(Imm(1), x[4], x[4])
		VPXOR(x[4], x[i], x[i])
	}
	VMOVD(x[0], Mem{Base: lo})
	VMOVD(x[1], Mem{Base: hi})
	ADDQ(Imm(4), lo)
	ADDQ(Imm(4), hi)
	DECQ(n)
	JNZ(LabelRef("block"))
	end()
}

const gridSignature = "(dst *byte, x *float32, zero *float32, inverse *float32, block int, n int, bias float32, top uint32)"

// round32 is the bits of gridRound in package kernel.
const round32 = 0x4b400000

// grid emits the loops over n blocks and the groups of each: block loads the terms of one, group turns 16 elements
// into codes.
func grid(name string, constants func(), block func(zero, inverse Mem), group func(dst, src reg.GPVirtual)) {
	begin(name, gridSignature)
	dst, src, zero, inverse, length, n := param("dst"), param("x"), param("zero"), param("inverse"), param("block"), param("n")
	constants()
	left := GP64()
	Label("block")
	block(Mem{Base: zero}, Mem{Base: inverse})
	MOVQ(length, left)
	Label("group")
	group(dst, src)
	ADDQ(Imm(64), src)
	ADDQ(Imm(rtnGroup), dst)
	SUBQ(Imm(rtnGroup), left)
	JNZ(LabelRef("group"))
	ADDQ(Imm(4), zero)
	ADDQ(Imm(4), inverse)
	DECQ(n)
	JNZ(LabelRef("block"))
	end()
}

// argument is the memory of a parameter.
func argument(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func gridAVX2(base Mem) {
	zero, inverse, bias, top, sub, none := y[15], y[14], y[13], y[12], y[11], y[10]
	grid("gridCodesAVX2", func() {
		VBROADCASTSS(argument("bias"), bias)
		VBROADCASTSS(argument("top"), top)
		VPBROADCASTD(base, sub)
		VPXOR(none, none, none)
	}, func(z, i Mem) {
		VBROADCASTSS(z, zero)
		VBROADCASTSS(i, inverse)
	}, func(dst, src reg.GPVirtual) {
		for i := range 2 {
			VMOVUPS(Mem{Base: src, Disp: 32 * i}, y[i])
			VSUBPS(zero, y[i], y[i])
			VMULPS(inverse, y[i], y[i])
			VADDPS(bias, y[i], y[i])
			VPSUBD(sub, y[i], y[i])
			VPMAXSD(none, y[i], y[i])
			VPMINSD(top, y[i], y[i])
		}
		VPACKUSDW(y[1], y[0], y[0])
		VPERMQ(Imm(0xd8), y[0], y[0])
		VEXTRACTI128(Imm(1), y[0], x[1])
		VPACKUSWB(x[1], x[0], x[0])
		VMOVDQU(x[0], Mem{Base: dst})
	})
}

func gridAVX512(base Mem) {
	zero, inverse, bias, top, sub, none := z[15], z[14], z[13], z[12], z[11], z[10]
	grid("gridCodesAVX512", func() {
		VBROADCASTSS(argument("bias"), bias)
		VBROADCASTSS(argument("top"), top)
		VPBROADCASTD(base, sub)
		VPXORD(none, none, none)
	}, func(z, i Mem) {
		VBROADCASTSS(z, zero)
		VBROADCASTSS(i, inverse)
	}, func(dst, src reg.GPVirtual) {
		VMOVUPS(Mem{Base: src}, z[0])
		VSUBPS(zero, z[0], z[0])
		VMULPS(inverse, z[0], z[0])
		VADDPS(bias, z[0], z[0])
		VPSUBD(sub, z[0], z[0])
		VPMAXSD(none, z[0], z[0])
		VPMINSD(top, z[0], z[0])
		VPMOVDB(z[0], x[0])
		VMOVDQU(x[0], Mem{Base: dst})
	})
}

// packCodes emits the packing of n codes, a multiple of rtnGroup: eight codes become bits bytes, the first code in
// the most significant bits.
func packCodes(bits int) {
	name := fmt.Sprintf("packCodes%dAVX2", bits)
	pairs := words(fmt.Sprintf("pairs%d", bits), repeat(uint32(1<<bits|1<<8|1<<(bits+16)|1<<24), 4)...)
	fours := words(fmt.Sprintf("fours%d", bits), repeat(uint32(1<<(2*bits)|1<<16), 4)...)
	var order [16]byte
	for i := range order {
		order[i] = 0x80
	}
	for half := range 2 {
		for i := range bits {
			order[half*bits+i] = byte(8*half + bits - 1 - i)
		}
	}
	var quads []uint32
	for i := 0; i < 16; i += 4 {
		quads = append(quads, uint32(order[i])|uint32(order[i+1])<<8|uint32(order[i+2])<<16|uint32(order[i+3])<<24)
	}
	shuffle := words(fmt.Sprintf("order%d", bits), quads...)

	begin(name, "(dst *byte, codes *byte, n int)")
	dst, src, n := param("dst"), param("codes"), param("n")
	VMOVDQU(pairs, x[13])
	VMOVDQU(fours, x[14])
	VMOVDQU(shuffle, x[15])
	Label("loop")
	VMOVDQU(Mem{Base: src}, x[0])
	VPMADDUBSW(x[13], x[0], x[0])
	VPMADDWD(x[14], x[0], x[0])
	VPSLLQ(Imm(uint64(4*bits)), x[0], x[1])
	VPSRLQ(Imm(32), x[0], x[0])
	VPOR(x[1], x[0], x[0])
	VPSHUFB(x[15], x[0], x[0])
	at := func(disp int) Mem { return Mem{Base: dst, Disp: disp} }
	switch bits {
	case 2:
		VMOVD(x[0], at(0))
	case 3:
		VMOVD(x[0], at(0))
		VPEXTRW(Imm(2), x[0], at(4))
	case 4:
		VMOVQ(x[0], at(0))
	case 5:
		VMOVQ(x[0], at(0))
		VPEXTRW(Imm(4), x[0], at(8))
	case 6:
		VMOVQ(x[0], at(0))
		VPEXTRD(Imm(2), x[0], at(8))
	}
	ADDQ(Imm(uint64(2*bits)), dst)
	ADDQ(Imm(rtnGroup), src)
	SUBQ(Imm(rtnGroup), n)
	JNZ(LabelRef("loop"))
	end()
}
