package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
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

// int8Tile emits a function; dots leaves the sums of a block in acc(t, v) and has moved w and x after its codes.
func int8Tile(f *int8Frame, tier string, acc func(t, v int) reg.VecPhysical, p [2]reg.VecPhysical, setup, dots func()) {
	kind := "Nibbles"
	if f.bytes {
		kind = "Bytes"
	}
	begin(fmt.Sprintf("int8%s%d%s", kind, f.tokens, tier), "(c *byte)")
	functions[len(functions)-1].Signature = "(c *int8Call)" // a type that avo does not know
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

// alternate emits the stages for each output, each stage two outputs after the one before it.
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
