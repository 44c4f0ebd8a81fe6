package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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
