package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The layout of int8Call in package kernel.
const (
	callOut    = 0
	callStride = 8
	callY      = 16
	callW      = 24
	callSums   = 32
	callBias   = 40
	callTails  = 48
	callZeros  = 56
	callX      = 64
	callTerms  = 72
	callBlocks = 80
	callShifts = 88
	callGroups = 96
	callEarly  = 104
	callTiles  = 112
)

const (
	panelBytes = 128 // 32 outputs, four bytes each: four codes, or eight of 4 bits, or a float
	// panelAhead is how far a single token's weights are fetched ahead.
	panelAhead = 4096
)

func int8() {
	nibble := words("nibbles", repeat(0x0f0f0f0f, 8)...)
	one := words("ones", repeat(0x00010001, 8)...)
	for _, bytes := range []bool{false, true} {
		for _, tokens := range []int{1, 2, 4, 8} {
			int8AVX512(tokens, bytes, nibble)
			if tokens < 8 {
				int8AVXVNNI(tokens, bytes, nibble)
				int8AVX2(tokens, bytes, nibble, one)
			}
		}
	}
	order := words("order",
		0x07050301, 0x06040200, 0x0f0d0b09, 0x0e0c0a08, 0x07050301, 0x06040200, 0x0f0d0b09, 0x0e0c0a08)
	int8Spread(false, nibble, order)
	int8Spread(true, nibble, order)
	int8Quantize(order)
	int8Range()
}

// int8Frame emits everything of a tile but the dot products of a block.
type int8Frame struct {
	tokens, vectors int // vectors of outputs
	size            int // bytes of a vector
	r               []reg.VecPhysical
	bytes           bool
	held            bool // the outputs stay in registers
	call, lane      reg.GPVirtual
	zeros           reg.GPVirtual
	column          int // which of the groups of eight columns that are emitted together
	w, x, y         reg.GPVirtual
}

// int8Tile emits a function; dots leaves the sums of a block in acc(t, v) and has moved w and x behind its codes.
func int8Tile(f *int8Frame, tier string, acc func(t, v int) reg.VecPhysical, p [2]reg.VecPhysical, setup, dots func()) {
	kind := "Nibbles"
	if f.bytes {
		kind = "Bytes"
	}
	begin(fmt.Sprintf("int8%s%d%s", kind, f.tokens, tier), "(c *byte)")
	f.call, f.lane = param("c"), GP64()
	f.w, f.x, f.y = GP64(), GP64(), GP64()
	load := func(at int, r reg.GPVirtual) { MOVQ(Mem{Base: f.call, Disp: at}, r) }
	setup()
	XORQ(f.lane, f.lane)
	load(callY, f.y)
	ADDQ(Imm(63), f.y) // to the next line of the cache, which loads and stores of the outputs would cross
	ANDQ(I8(-64), f.y)
	Label("part")
	out, tiles := GP64(), GP64()
	load(callOut, out)
	ADDQ(f.lane, out)
	load(callTiles, tiles)
	load(callX, f.x)
	terms := GP64()
	load(callTerms, terms)
	f.zeros = GP64()
	load(callZeros, f.zeros)
	Label("tile")

	// With the bias first the outputs start with it, otherwise with 0.
	f.each(func(t, v int) {
		if f.held {
			f.zero(f.outputs(t, v))
			return
		}
		if t+v == 0 {
			f.zero(p[0])
		}
		VMOVUPS(p[0], f.slot(t, v))
	})
	CMPQ(Mem{Base: f.call, Disp: callEarly}, Imm(0))
	JEQ(LabelRef("started"))
	f.bias("first", p, f.slot)
	Label("started")

	sums, left := GP64(), GP64()
	load(callW, f.w)
	ADDQ(f.lane, f.w)
	load(callSums, sums)
	ADDQ(f.lane, sums)
	load(callBlocks, left)
	Label("block")
	dots()
	if f.size == 64 {
		f.finish512(acc, terms, sums, left)
	} else {
		f.finish256(acc, p, terms, sums, left)
	}
	ADDQ(U32(2*panelBytes), f.w)
	ADDQ(Imm(uint64(12*f.tokens)), terms)
	DECQ(left)
	JNZ(LabelRef("block"))

	// out is at the last token of the tile while it is written.
	stride := GP64()
	load(callStride, stride)
	to := func(t, v int) Mem {
		if v == 0 && t > 0 {
			ADDQ(stride, out)
		}
		return Mem{Base: out, Disp: f.size * v}
	}
	CMPQ(Mem{Base: f.call, Disp: callEarly}, Imm(0))
	JNE(LabelRef("finished"))
	f.bias("last", p, to)
	JMP(LabelRef("written"))
	Label("finished")
	f.each(func(t, v int) {
		from := p[0]
		if f.held {
			from = f.outputs(t, v)
		} else {
			VMOVUPS(f.slot(t, v), from)
		}
		VMOVUPS(from, to(t, v))
	})
	Label("written")
	ADDQ(stride, out)
	TESTQ(f.zeros, f.zeros)
	JZ(LabelRef("next"))
	ADDQ(Imm(uint64(4*f.tokens)), f.zeros)
	Label("next")
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	ADDQ(U32(f.size*f.vectors), f.lane)
	CMPQ(f.lane, U32(panelBytes))
	JLT(LabelRef("part"))
	end()
}

// finish512 scales the sums of a block and adds them to the outputs. A chain of dependent operations in a row would fill
// the scheduler and keep the next block out of it, so the operations of several outputs alternate.
func (f *int8Frame) finish512(acc func(t, v int) reg.VecPhysical, terms, sums, left reg.GPVirtual) {
	term := func(kind, t int) Mem { return Mem{Base: terms, Disp: 4 * (kind*f.tokens + t)} }
	scale, offset, products := z[22:24], z[24:26], append(z[16:22:22], z[26:28]...)
	for v := range f.vectors {
		VMOVUPS(Mem{Base: f.w, Disp: 64 * v}, scale[v])
		VMOVUPS(Mem{Base: f.w, Disp: panelBytes + 64*v}, offset[v])
	}
	f.alternate(
		func(t, v int) { VCVTDQ2PS(acc(t, v), acc(t, v)) },
		func(t, v int) { VMULPS(scale[v], acc(t, v), acc(t, v)) },
		func(t, v int) { VMULPS_BCST(term(0, t), acc(t, v), acc(t, v)) },
	)
	add := func(kind int, by []reg.VecPhysical, last func(t, v int)) {
		product := func(t, v int) reg.VecPhysical { return products[(2*t+v)%len(products)] }
		f.each(func(t, v int) {
			VMULPS_BCST(term(kind, t), by[v], product(t, v))
			VADDPS(product(t, v), acc(t, v), acc(t, v))
			last(t, v)
		})
	}
	CMPQ(left, Mem{Base: f.call, Disp: callShifts})
	JGT(LabelRef("plain"))
	for v := range f.vectors {
		VMOVUPS(Mem{Base: sums, Disp: 64 * v}, z[28+v])
	}
	add(2, z[28:30], func(t, v int) {})
	ADDQ(U32(panelBytes), sums)
	Label("plain")
	add(1, offset, func(t, v int) {
		if f.held {
			VADDPS(acc(t, v), f.outputs(t, v), f.outputs(t, v))
			return
		}
		VADDPS(f.slot(t, v), acc(t, v), acc(t, v))
		VMOVUPS(acc(t, v), f.slot(t, v))
	})
}

// alternate emits the stages for each output, each stage two outputs behind the one before it.
func (f *int8Frame) alternate(stages ...func(t, v int)) {
	n := f.tokens * f.vectors
	for step := range n + 2*len(stages) {
		for s, stage := range stages {
			if i := step - 2*s; i >= 0 && i < n {
				stage(i/f.vectors, i%f.vectors)
			}
		}
	}
}

// finish256 does the same as finish512.
func (f *int8Frame) finish256(acc func(t, v int) reg.VecPhysical, p [2]reg.VecPhysical, terms, sums, left reg.GPVirtual) {
	times := func(kind, t int, by Op, to reg.VecPhysical) {
		VBROADCASTSS(Mem{Base: terms, Disp: 4 * (kind*f.tokens + t)}, to)
		VMULPS(by, to, to)
	}
	f.each(func(t, v int) {
		a := acc(t, v)
		VCVTDQ2PS(a, a)
		VMULPS(Mem{Base: f.w, Disp: 32 * v}, a, a)
		VBROADCASTSS(Mem{Base: terms, Disp: 4 * t}, p[0])
		VMULPS(p[0], a, a)
	})
	CMPQ(left, Mem{Base: f.call, Disp: callShifts})
	JGT(LabelRef("plain"))
	f.each(func(t, v int) {
		times(2, t, Mem{Base: sums, Disp: 32 * v}, p[0])
		VADDPS(p[0], acc(t, v), acc(t, v))
	})
	ADDQ(U32(panelBytes), sums)
	Label("plain")
	f.each(func(t, v int) {
		q := p[(t*f.vectors+v)%2]
		times(1, t, Mem{Base: f.w, Disp: panelBytes + 32*v}, q)
		VADDPS(q, acc(t, v), acc(t, v))
		VADDPS(f.slot(t, v), acc(t, v), acc(t, v))
		VMOVUPS(acc(t, v), f.slot(t, v))
	})
}

func (f *int8Frame) each(do func(t, v int)) {
	for t := range f.tokens {
		for v := range f.vectors {
			do(t, v)
		}
	}
}

func (f *int8Frame) outputs(t, v int) reg.VecPhysical { return f.r[8+t*f.vectors+v] }

func (f *int8Frame) slot(t, v int) Mem { return Mem{Base: f.y, Disp: panelBytes*t + f.size*v} }

func (f *int8Frame) zero(r reg.VecPhysical) {
	if f.size == 64 {
		VPXORD(r, r, r)
	} else {
		VPXOR(r, r, r)
	}
}

// bias adds the bias and, where there are zeros, zero times the sum of the weights, to the outputs, which go to memory
// or, if they are held and to is slot, stay.
func (f *int8Frame) bias(label string, p [2]reg.VecPhysical, to func(t, v int) Mem) {
	stay := f.held && label == "first"
	bias, tails := GP64(), GP64()
	MOVQ(Mem{Base: f.call, Disp: callBias}, bias)
	ADDQ(f.lane, bias)
	for _, asym := range []bool{false, true} {
		if !asym {
			TESTQ(f.zeros, f.zeros)
			JNZ(LabelRef(label + "zeros"))
		} else {
			Label(label + "zeros")
			MOVQ(Mem{Base: f.call, Disp: callTails}, tails)
			ADDQ(f.lane, tails)
		}
		f.each(func(t, v int) {
			at := f.size * v
			b := Op(Mem{Base: bias, Disp: at})
			if asym {
				VBROADCASTSS(Mem{Base: f.zeros, Disp: 4 * t}, p[0])
				VMULPS(Mem{Base: tails, Disp: at}, p[0], p[0])
				VADDPS(b, p[0], p[0])
			} else {
				VMOVUPS(b, p[0])
			}
			switch {
			case stay:
				VADDPS(p[0], f.outputs(t, v), f.outputs(t, v))
				return
			case f.held:
				VADDPS(p[0], f.outputs(t, v), p[0])
			default:
				VADDPS(f.slot(t, v), p[0], p[0])
			}
			VMOVUPS(p[0], to(t, v))
		})
		if !asym {
			JMP(LabelRef(label + "added"))
		}
	}
	Label(label + "added")
}

// loop emits the loop over a block's groups of eight columns, several at a time in chains of their own.
func (f *int8Frame) loop(chains int, group func(chain int)) {
	left := GP64()
	MOVQ(Mem{Base: f.call, Disp: callGroups}, left)
	size := panelBytes
	if f.bytes {
		size *= 2
	}
	round := func(label string, n int) {
		Label(label)
		if f.tokens == 1 {
			for line := 0; line < n*size; line += 64 {
				PREFETCHT0(Mem{Base: f.w, Disp: panelAhead + line})
			}
		}
		for chain := range n {
			f.column = chain
			group(chain)
		}
		ADDQ(U32(n*size), f.w)
		ADDQ(Imm(uint64(n*8*f.tokens)), f.x)
	}
	if chains == 1 {
		round("group", 1)
		DECQ(left)
		JNZ(LabelRef("group"))
		return
	}
	SUBQ(Imm(2), left)
	JLT(LabelRef("single"))
	round("groups", 2)
	SUBQ(Imm(2), left)
	JGE(LabelRef("groups"))
	Label("single")
	TESTQ(U32(1), left) // -1 is one group, -2 none
	JZ(LabelRef("summed"))
	round("group", 1)
	Label("summed")
}

// code is vector v of the codes; those of bytes come in two halves of four columns.
func (f *int8Frame) code(half, v int) Mem {
	size := panelBytes
	if f.bytes {
		size *= 2
	}
	return Mem{Base: f.w, Disp: f.column*size + half*panelBytes + v*f.size}
}

// act is the four activation codes of a half of eight columns.
func (f *int8Frame) act(half, t int) Mem {
	return Mem{Base: f.x, Disp: 4 * ((2*f.column+half)*f.tokens + t)}
}

func int8AVX512(tokens int, bytes bool, nibble Mem) {
	f := &int8Frame{tokens: tokens, vectors: 2, size: 64, r: z, bytes: bytes, held: tokens <= 4}
	w := func(half, v int) reg.VecPhysical { return z[16+2*half+v] }
	mask := z[31]
	// A product waits for the one before it in its chain. Few tokens have chains for the halves of eight columns and
	// for two groups of columns.
	halves, groups := 1, 1
	switch tokens {
	case 1:
		halves, groups = 2, 2
	case 2:
		halves = 2
	}
	sum := func(chain, t, v int) reg.VecPhysical { return z[(chain*tokens+t)*2+v] }
	acc := func(t, v int) reg.VecPhysical { return sum(0, t, v) }
	int8Tile(f, "AVX512", acc, [2]reg.VecPhysical{z[28], z[29]}, func() {
		if !bytes {
			VPBROADCASTD(nibble, mask)
		}
	}, func() {
		for chain := range halves * groups {
			f.each(func(t, v int) { f.zero(sum(chain, t, v)) })
		}
		f.loop(groups, func(group int) {
			for v := range 2 {
				if bytes {
					VMOVDQU32(f.code(0, v), w(0, v))
					VMOVDQU32(f.code(1, v), w(1, v))
					continue
				}
				VMOVDQU32(f.code(0, v), w(1, v))
				if tokens == 8 { // a panel comes from beyond the L2 cache when its first tile meets it
					ahead := f.code(0, v)
					ahead.Disp += 2048
					PREFETCHT0(ahead)
				}
				VPANDD(w(1, v), mask, w(0, v))
				VPSRLW(Imm(4), w(1, v), w(1, v))
				VPANDD(w(1, v), mask, w(1, v))
			}
			for half := range 2 {
				for t := range tokens {
					b := z[20+t%2]
					VPBROADCASTD(f.act(half, t), b)
					for v := range 2 {
						VPDPBUSD(w(half, v), b, sum(group*halves+half%halves, t, v))
					}
				}
			}
		})
		for n := halves * groups / 2; n > 0; n /= 2 {
			for chain := range n {
				f.each(func(t, v int) { VPADDD(sum(n+chain, t, v), sum(chain, t, v), sum(chain, t, v)) })
			}
		}
	})
}

func int8AVXVNNI(tokens int, bytes bool, nibble Mem) {
	vectors, halves := 2, 1
	switch tokens {
	case 1:
		vectors, halves = 4, 2
	case 2:
		halves = 2
	}
	f := &int8Frame{tokens: tokens, vectors: vectors, size: 32, r: y, bytes: bytes}
	sum := func(half, t, v int) reg.VecPhysical { return y[(half%halves*tokens+t)*vectors+v] }
	acc := func(t, v int) reg.VecPhysical { return sum(0, t, v) }
	b := [2]reg.VecPhysical{y[12], y[13]}
	int8Tile(f, "AVXVNNI", acc, [2]reg.VecPhysical{y[14], y[15]}, func() {}, func() {
		for half := range halves {
			f.each(func(t, v int) { f.zero(sum(half, t, v)) })
		}
		f.loop(1, func(int) {
			w := func(half, v int) reg.VecPhysical { return y[8+2*half+v%2] }
			unpack := func(v int) {
				if bytes {
					VMOVDQU(f.code(0, v), w(0, v))
					VMOVDQU(f.code(1, v), w(1, v))
					return
				}
				VMOVDQU(f.code(0, v), w(1, v))
				VPAND(nibble, w(1, v), w(0, v))
				VPSRLW(Imm(4), w(1, v), w(1, v))
				VPAND(nibble, w(1, v), w(1, v))
			}
			for first := 0; first < vectors; first += 2 {
				unpack(first)
				unpack(first + 1)
				for t := range tokens {
					for half := range 2 {
						if first == 0 || tokens > 1 {
							VPBROADCASTD(f.act(half, t), b[half])
						}
						for v := first; v < first+2; v++ {
							vpdpbusd(w(half, v), b[half], sum(half, t, v))
						}
					}
				}
			}
		})
		if halves == 2 {
			f.each(func(t, v int) { VPADDD(sum(1, t, v), acc(t, v), acc(t, v)) })
		}
	})
}

// vpdpbusd is the VEX form of VPDPBUSD, which the assembler does not know: VEX.256.66.0F38.W0 50 /r.
func vpdpbusd(signed, unsigned, sum reg.VecPhysical) {
	number := func(r reg.VecPhysical) byte {
		for i, v := range y {
			if v == r {
				return byte(i)
			}
		}
		panic("no ymm register")
	}
	s, u, d := number(signed), number(unsigned), number(sum)
	bytes := []byte{0xc4, 0xe2 &^ (d >> 3 << 7) &^ (s >> 3 << 5), 0x05 | (^u&15)<<3, 0x50, 0xc0 | d&7<<3 | s&7}
	for _, b := range bytes {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(b)}})
	}
}

// int8AVX2 multiplies codes of 4 bits as bytes: two sums of two products, at most 255*15 each, fit an int16. Others are
// widened to 16 bits; a register then has four outputs, and a sum is in two parts.
func int8AVX2(tokens int, bytes bool, nibble, one Mem) {
	vectors := map[int]int{1: 4, 2: 2, 4: 2}[tokens]
	if bytes && tokens == 4 {
		vectors = 1
	}
	f := &int8Frame{tokens: tokens, vectors: vectors, size: 32, r: y, bytes: bytes}
	p := [2]reg.VecPhysical{y[14], y[15]}
	acc := func(t, v int) reg.VecPhysical { return y[t*vectors+v] }
	b := [2]reg.VecPhysical{y[12], y[13]}
	if !bytes {
		int8Tile(f, "AVX2", acc, p, func() {}, func() {
			f.each(func(t, v int) { f.zero(acc(t, v)) })
			f.loop(1, func(int) {
				w := func(half, v int) reg.VecPhysical { return y[8+2*half+v%2] }
				for first := 0; first < vectors; first += 2 {
					for v := first; v < first+2; v++ {
						VMOVDQU(f.code(0, v), w(1, v))
						VPAND(nibble, w(1, v), w(0, v))
						VPSRLW(Imm(4), w(1, v), w(1, v))
						VPAND(nibble, w(1, v), w(1, v))
					}
					for t := range tokens {
						for half := range 2 {
							if first == 0 || tokens > 1 {
								VPBROADCASTD(f.act(half, t), b[half])
							}
						}
						for v := first; v < first+2; v++ {
							VPMADDUBSW(w(0, v), b[0], p[0])
							VPMADDUBSW(w(1, v), b[1], p[1])
							VPADDW(p[1], p[0], p[0])
							VPMADDWD(one, p[0], p[0])
							VPADDD(p[0], acc(t, v), acc(t, v))
						}
					}
				}
			})
		})
		return
	}
	// Outputs 0 to 3 of a vector add up in low, 4 to 7 in high.
	low := func(t, v int) reg.VecPhysical { return y[2*(t*vectors+v)] }
	high := func(t, v int) reg.VecPhysical { return y[2*(t*vectors+v)+1] }
	int8Tile(f, "AVX2", low, p, func() {}, func() {
		f.each(func(t, v int) { f.zero(low(t, v)); f.zero(high(t, v)) })
		f.loop(1, func(int) {
			for half := range 2 {
				for v := range vectors {
					at := f.code(half, v)
					VPMOVSXBW(at, y[8])
					at.Disp += 16
					VPMOVSXBW(at, y[9])
					for t := range tokens {
						if v == 0 || tokens > 1 {
							VPBROADCASTD(f.act(half, t), x[12])
							VPMOVZXBW(x[12], y[12])
						}
						VPMADDWD(y[8], y[12], p[0])
						VPMADDWD(y[9], y[12], p[1])
						VPADDD(p[0], low(t, v), low(t, v))
						VPADDD(p[1], high(t, v), high(t, v))
					}
				}
			}
		})
		f.each(func(t, v int) {
			VPHADDD(high(t, v), low(t, v), low(t, v))
			VPERMQ(Imm(0xd8), low(t, v), low(t, v))
		})
	})
}

// int8Quantize writes the codes of n columns, a multiple of eight, plus 128, and returns their sum. In groups of eight
// columns the odd ones come before the even ones, stride bytes apart.
func int8Quantize(order Mem) {
	flip := words("flips", repeat(0x80808080, 8)...)
	join := words("join", 0, 4, 1, 5, 2, 6, 3, 7)
	least, most := words("least", repeat(0xc3000000, 8)...), words("most", repeat(0x42fe0000, 8)...) // -128, 127
	half, sign := words("half", repeat(0x3f000000, 8)...), words("sign", repeat(0x80000000, 8)...)
	for _, away := range []bool{false, true} {
		name := "int8RoundEvenAVX2"
		if away {
			name = "int8RoundAwayAVX2"
		}
		begin(name, "(dst *byte, x *float32, n int, stride int, quant float32, bias float32) (sum int)")
		dst, src, n, stride := param("dst"), param("x"), param("n"), param("stride")
		quant, bias, sum := y[15], y[14], y[13]
		load := func(name string, to reg.VecPhysical) {
			p, err := Param(name).Resolve()
			if err != nil {
				panic(err)
			}
			VBROADCASTSS(p.Addr, to)
		}
		load("quant", quant)
		load("bias", bias)
		VPXOR(sum, sum, sum)
		VPXOR(y[12], y[12], y[12])
		code := func(at int, v reg.VecPhysical, t reg.VecPhysical) {
			VMULPS(Mem{Base: src, Disp: at}, quant, v)
			VADDPS(bias, v, v)
			if !away {
				VCVTPS2DQ(v, v) // to the nearest, halves to even; packing clamps
				return
			}
			VMAXPS(least, v, v)
			VMINPS(most, v, v)
			VPAND(sign, v, t)
			VPOR(half, t, t)
			VADDPS(t, v, v)
			VCVTTPS2DQ(v, v)
		}
		Label("wide")
		CMPQ(n, Imm(32))
		JLT(LabelRef("narrow"))
		for i := range 4 {
			code(32*i, y[i], y[4+i])
		}
		VPACKSSDW(y[1], y[0], y[0])
		VPACKSSDW(y[3], y[2], y[2])
		VPACKSSWB(y[2], y[0], y[0])
		VMOVDQU(join, y[1])
		VPERMD(y[0], y[1], y[0])
		VPXOR(flip, y[0], y[0])
		VPSHUFB(order, y[0], y[0])
		VPSADBW(y[12], y[0], y[1])
		VPADDQ(y[1], sum, sum)
		ADDQ(U32(128), src)
		SUBQ(Imm(32), n)
		CMPQ(stride, Imm(4))
		JNE(LabelRef("apart"))
		VMOVDQU(y[0], Mem{Base: dst})
		ADDQ(Imm(32), dst)
		JMP(LabelRef("wide"))
		Label("apart")
		VEXTRACTI128(Imm(1), y[0], x[1])
		for i := range 8 {
			if i%4 == 0 {
				VMOVD(x[i/4], Mem{Base: dst})
			} else {
				VPEXTRD(Imm(uint64(i%4)), x[i/4], Mem{Base: dst})
			}
			ADDQ(stride, dst)
		}
		JMP(LabelRef("wide"))
		Label("narrow")
		CMPQ(n, Imm(8))
		JLT(LabelRef("done"))
		code(0, y[0], y[4])
		VEXTRACTI128(Imm(1), y[0], x[1])
		VPACKSSDW(x[1], x[0], x[0])
		VPACKSSWB(x[12], x[0], x[0])
		VPXOR(flip, x[0], x[0])
		VMOVQ(x[0], x[0])
		VPSADBW(x[12], x[0], x[1])
		VPADDQ(y[1], sum, sum)
		VPSHUFB(order, x[0], x[0])
		VMOVD(x[0], Mem{Base: dst})
		VPEXTRD(Imm(1), x[0], Mem{Base: dst, Index: stride, Scale: 1})
		LEAQ(Mem{Base: dst, Index: stride, Scale: 2}, dst)
		ADDQ(Imm(32), src)
		SUBQ(Imm(8), n)
		JMP(LabelRef("narrow"))
		Label("done")
		VEXTRACTI128(Imm(1), sum, x[1])
		VPADDQ(x[1], x[13], x[13])
		VPSHUFD(Imm(0xee), x[13], x[1])
		VPADDQ(x[1], x[13], x[13])
		total := GP64()
		VMOVQ(x[13], total)
		Store(total, Return("sum"))
		end()
	}
}

// int8Spread writes codes in pieces of four bytes, a line of a panel apart, and returns their sum.
func int8Spread(bytes bool, nibble, order Mem) {
	if bytes {
		begin("int8SpreadBytesAVX2", "(dst *byte, codes *byte, n int, half int) (sum int)")
	} else {
		begin("int8SpreadNibblesAVX2", "(dst *byte, codes *byte, n int) (sum int)")
	}
	dst, codes, n := param("dst"), param("codes"), param("n")
	if bytes {
		VMOVQ(param("half"), x[7])
		VPBROADCASTB(x[7], x[7])
	}
	VPXOR(x[5], x[5], x[5])
	VPXOR(x[6], x[6], x[6])
	Label("loop")
	VMOVDQU(Mem{Base: codes}, x[0])
	if bytes {
		VPSADBW(x[6], x[0], x[1])
		VPSUBB(x[7], x[0], x[0])
		VPSHUFB(order, x[0], x[0])
	} else {
		VPSRLW(Imm(4), x[0], x[1])
		VPAND(nibble, x[1], x[1])
		VPAND(nibble, x[0], x[2])
		VPADDB(x[2], x[1], x[1])
		VPSADBW(x[6], x[1], x[1])
	}
	VPADDQ(x[1], x[5], x[5])
	VMOVD(x[0], Mem{Base: dst})
	for i := 1; i < 4; i++ {
		VPEXTRD(Imm(uint64(i)), x[0], Mem{Base: dst, Disp: panelBytes * i})
	}
	ADDQ(Imm(16), codes)
	ADDQ(U32(4*panelBytes), dst)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("loop"))
	VPSHUFD(Imm(0xee), x[5], x[1])
	VPADDQ(x[1], x[5], x[5])
	sum := GP64()
	VMOVQ(x[5], sum)
	Store(sum, Return("sum"))
	end()
}

// int8Range is the smallest and the largest of n elements, a multiple of eight and not 0.
func int8Range() {
	begin("int8RangeAVX2", "(x *float32, n int) (lo float32, hi float32)")
	src, n := param("x"), param("n")
	for i := range 4 {
		VMOVUPS(Mem{Base: src}, y[i])
		VMOVUPS(Mem{Base: src}, y[4+i])
	}
	Label("wide")
	CMPQ(n, Imm(32))
	JLT(LabelRef("narrow"))
	for i := range 4 {
		VMOVUPS(Mem{Base: src, Disp: 32 * i}, y[8])
		VMINPS(y[8], y[i], y[i])
		VMAXPS(y[8], y[4+i], y[4+i])
	}
	ADDQ(U32(128), src)
	SUBQ(Imm(32), n)
	JMP(LabelRef("wide"))
	Label("narrow")
	CMPQ(n, Imm(8))
	JLT(LabelRef("done"))
	VMINPS(Mem{Base: src}, y[0], y[0])
	VMAXPS(Mem{Base: src}, y[4], y[4])
	ADDQ(Imm(32), src)
	SUBQ(Imm(8), n)
	JMP(LabelRef("narrow"))
	Label("done")
	fold := func(i int, op func(a, b, c Op), name string) {
		op(y[i+1], y[i], y[i])
		op(y[i+3], y[i+2], y[i+2])
		op(y[i+2], y[i], y[i])
		VEXTRACTF128(Imm(1), y[i], x[i+1])
		op(x[i+1], x[i], x[i])
		VPSHUFD(Imm(0x4e), x[i], x[i+1])
		op(x[i+1], x[i], x[i])
		VPSHUFD(Imm(0xb1), x[i], x[i+1])
		op(x[i+1], x[i], x[i])
		Store(x[i], Return(name))
	}
	fold(0, func(a, b, c Op) { VMINPS(a, b, c) }, "lo")
	fold(4, func(a, b, c Op) { VMAXPS(a, b, c) }, "hi")
	end()
}
