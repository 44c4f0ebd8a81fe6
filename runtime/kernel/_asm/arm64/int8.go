package main

import "fmt"

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

// panelBytes is the size of four bytes for each of the 32 rows of a panel.
const panelBytes = 128

func int8() {
	for _, bytes := range []bool{false, true} {
		int8NEON(bytes)
		for _, tokens := range []int{1, 2, 4, 8} {
			int8Dot("DotProd", tokens, bytes, false)
		}
		int8MMLA(bytes)
	}
	for _, tokens := range []int{1, 2, 4} {
		int8Dot("I8MM", tokens, true, true)
	}
	int8Quantize(false)
	int8Quantize(true)
	int8Range()
}

func umull(d, n, m v)  { three(0x2e20c000, "UMULL", "8H", "8B", d, n, m) }
func umull2(d, n, m v) { three(0x6e20c000, "UMULL2", "8H", "16B", d, n, m) }
func umlal(d, n, m v)  { three(0x2e208000, "UMLAL", "8H", "8B", d, n, m) }
func umlal2(d, n, m v) { three(0x6e208000, "UMLAL2", "8H", "16B", d, n, m) }
func smull(d, n, m v)  { three(0x0e20c000, "SMULL", "8H", "8B", d, n, m) }
func smull2(d, n, m v) { three(0x4e20c000, "SMULL2", "8H", "16B", d, n, m) }
func saddlp(d, n v)    { two(0x4e202800, "SADDLP", "8H", "16B", d, n) }
func sadalp(d, n v)    { two(0x4e606800, "SADALP", "4S", "8H", d, n) } // adds pairs to d
func uadalp(d, n v)    { two(0x6e606800, "UADALP", "4S", "8H", d, n) }

// A dot product adds to each of four sums the products of four codes of n and the same four of m.
func udot(d, n, m v, i int)  { lane(0x6f80e000, "UDOT", "4S", "16B", "4B", d, n, m, i) }
func sdot(d, n, m v, i int)  { lane(0x4f80e000, "SDOT", "4S", "16B", "4B", d, n, m, i) }
func sudot(d, n, m v, i int) { lane(0x4f00f000, "SUDOT", "4S", "16B", "4B", d, n, m, i) } // signed n, unsigned m

// These add the products of two rows n and two rows m of eight codes: n0 m0, n0 m1, n1 m0, n1 m1. usmmla has unsigned n.
func ummla(d, n, m v)  { three(0x6e80a400, "UMMLA", "4S", "16B", d, n, m) }
func usmmla(d, n, m v) { three(0x4e80ac00, "USMMLA", "4S", "16B", d, n, m) }

func addp(d, n, m v)  { ins("VADDP V%d.S4, V%d.S4, V%d.S4", m, n, d) } // n0+n1, n2+n3, m0+m1, m2+m3
func zip1(d, n, m v)  { ins("VZIP1 V%d.S4, V%d.S4, V%d.S4", m, n, d) } // n0, m0, n1, m1
func zip2(d, n, m v)  { ins("VZIP2 V%d.S4, V%d.S4, V%d.S4", m, n, d) } // n2, m2, n3, m3
func lower(d, n, m v) { ins("VTRN1 V%d.D2, V%d.D2, V%d.D2", m, n, d) } // n0, n1, m0, m1
func upper(d, n, m v) { ins("VTRN2 V%d.D2, V%d.D2, V%d.D2", m, n, d) } // n2, n3, m2, m3

// Registers of the kernels. PW, PX, PY and PS move within the block that W, X and Sums show; the codes and terms of tiles
// follow one another.
const (
	int8Call, int8W, int8X, int8Terms, int8Sums, int8Y = r(0), r(1), r(2), r(3), r(4), r(5)
	int8Blocks, int8Shifts, int8Groups, int8Left       = r(6), r(7), r(8), r(9)
	int8PW, int8PX, int8PY, int8PS, int8Row, int8Inner = r(10), r(11), r(12), r(13), r(14), r(15)
	int8Out, int8Tiles, int8Zeros                      = r(22), r(23), r(24)

	int8Term, int8Flip, int8Mask, int8Ones v = 16, 30, 31, 31
)

// int8Tile emits a kernel for one panel and several tiles. It takes the rows of a block in passes, as many at a time as fit the registers.
type int8Tile struct {
	tokens, rows int
	bytes        bool
	lifted       bool                  // codes of activations without 128 meet signed weights
	loop         func()                // adds up a block of the rows
	sum          func(t, i int) (v, v) // the register of token t and vector i of the rows; another one that is free
}

func (f *int8Tile) emit(tier string) {
	kind := "Nibbles"
	if f.bytes {
		kind = "Bytes"
	}
	begin(fmt.Sprintf("int8%s%d%s", kind, f.tokens, tier), "(c *int8Call)")
	for _, a := range []struct {
		at int
		to r
	}{{callX, int8X}, {callTerms, int8Terms}, {callY, int8Y}, {callShifts, int8Shifts}, {callGroups, int8Groups},
		{callOut, int8Out}, {callTiles, int8Tiles}, {callZeros, int8Zeros}} {
		ins("MOVD %d(%s), %s", a.at, int8Call, a.to)
	}
	switch {
	case !f.bytes:
		ins("VMOVI $15, V%d.B16", int8Mask)
	case f.lifted:
		ins("VMOVI $128, V%d.B16", int8Flip)
		ins("VMOVI $1, V%d.B16", int8Ones)
	}
	label("tile")
	ins("MOVD %d(%s), %s", callW, int8Call, int8W)
	ins("MOVD %d(%s), %s", callSums, int8Call, int8Sums)
	ins("MOVD %d(%s), %s", callBlocks, int8Call, int8Blocks)
	f.start()
	label("block")
	ins("MOVD $0, %s", int8Row)
	label("rows")
	ins("ADD %s, %s, %s", int8Row, int8W, int8PW)
	ins("MOVD %s, %s", int8X, int8PX)
	f.loop()
	f.scale()
	ins("ADD $%d, %s", 4*f.rows, int8Row)
	ins("CMP $%d, %s", panelBytes, int8Row)
	ins("BNE rows")
	// The last rows ended after the codes, and so before scales and offsets.
	ins("ADD $%d, %s, %s", 4*f.rows+panelBytes, int8PW, int8W)
	ins("MOVD %s, %s", int8PX, int8X)
	ins("ADD $%d, %s", 12*f.tokens, int8Terms)
	ins("CMP %s, %s", int8Shifts, int8Blocks)
	ins("BGT next")
	ins("ADD $%d, %s", panelBytes, int8Sums)
	label("next")
	ins("SUBS $1, %s", int8Blocks)
	ins("BNE block")
	f.end()
	ins("SUBS $1, %s", int8Tiles)
	ins("BNE tile")
	ret()
}

// biased calls add for the vectors of a row of y, to which int8PY points, with a register that holds the bias.
func (f *int8Tile) biased(name string, add func(t int, bias v)) {
	const bias, tails = r(19), r(20)
	ins("MOVD %d(%s), %s", callBias, int8Call, bias)
	ins("MOVD %d(%s), %s", callTails, int8Call, tails)
	ins("MOVD %s, %s", int8Y, int8PY)
	ins("MOVD $8, %s", int8Left)
	each := func(loop string, body func()) {
		label(name + loop)
		ins("FMOVQ.P 16(%s), F26", bias)
		body()
		ins("ADD $16, %s", int8PY)
		ins("SUBS $1, %s", int8Left)
		ins("BNE %s%s", name, loop)
	}
	ins("CBNZ %s, %szeros", int8Zeros, name)
	each("bias", func() {
		for t := range f.tokens {
			add(t, 26)
		}
	})
	ins("B %sdone", name)
	label(name + "zeros")
	for t := range f.tokens {
		ins("FMOVS %d(%s), F%d", 4*t, int8Zeros, 16+t)
	}
	each("tail", func() {
		ins("FMOVQ.P 16(%s), F27", tails)
		for t := range f.tokens {
			fmulLane(28, 27, v(16+t), 0)
			fadd(28, 26, 28)
			add(t, 28)
		}
	})
	label(name + "done")
}

// start sets y to the bias, if that comes early, or to 0.
func (f *int8Tile) start() {
	ins("MOVD %d(%s), R19", callEarly, int8Call)
	ins("CBNZ R19, early")
	ins("MOVD %s, %s", int8Y, int8PY)
	zero(0)
	for i := 0; i < 8*f.tokens; i += 2 {
		ins("FSTPQ (F0, F0), %d(%s)", 16*i%panelBytes, int8PY)
		if 16*(i+2)%panelBytes == 0 {
			ins("ADD $%d, %s", panelBytes, int8PY)
		}
	}
	ins("B started")
	label("early")
	f.biased("early", func(t int, bias v) { store(bias, int8PY, panelBytes*t) })
	label("started")
}

// end writes y, with the bias if that comes late, and moves to the next tile.
func (f *int8Tile) end() {
	const stride = r(25)
	ins("MOVD %d(%s), %s", callStride, int8Call, stride)
	ins("MOVD %d(%s), R19", callEarly, int8Call)
	ins("CBNZ R19, write")
	f.biased("late", func(t int, bias v) {
		load(24, int8PY, panelBytes*t)
		fadd(24, 24, bias)
		store(24, int8PY, panelBytes*t)
	})
	label("write")
	ins("MOVD %s, %s", int8Y, int8PY)
	for range f.tokens {
		for i := 0; i < 8; i += 2 {
			ins("FLDPQ %d(%s), (F%d, F%d)", 16*i, int8PY, i, i+1)
		}
		for i := 0; i < 8; i += 2 {
			ins("FSTPQ (F%d, F%d), %d(%s)", i, i+1, 16*i, int8Out)
		}
		ins("ADD $%d, %s", panelBytes, int8PY)
		ins("ADD %s, %s", stride, int8Out)
	}
	ins("CBZ %s, written", int8Zeros)
	ins("ADD $%d, %s", 4*f.tokens, int8Zeros)
	label("written")
}

// scale adds the block to y, every operation rounded.
func (f *int8Tile) scale() {
	const scale, offset, shift = v(24), v(26), v(28)
	// Scales, sums and shifts of the tokens.
	term := func(kind, t int) (v, int) { return int8Term + v(kind*((f.tokens+3)/4)+t/4), t % 4 }
	for kind := range 3 {
		for t := 0; t < f.tokens; t += 4 {
			name := map[int]string{1: "FMOVS", 2: "FMOVD", 4: "FMOVQ"}[min(4, f.tokens)]
			d, _ := term(kind, t)
			ins("%s %d(%s), %s", name, 4*(kind*f.tokens+t), int8Terms, d.f())
		}
	}
	ins("ADD %s, %s, %s", int8Row, int8Y, int8PY)
	ins("ADD %s, %s, %s", int8Row, int8Sums, int8PS)
	add := func(withShift bool) {
		for i := range f.rows / 4 {
			load(scale, int8PW, 16*i)
			load(offset, int8PW, panelBytes+16*i)
			if withShift {
				load(shift, int8PS, 16*i)
			}
			for t := range f.tokens {
				s, free := f.sum(t, i)
				at := panelBytes*t + 16*i
				scvtf(s, s)
				fmul(s, s, scale)
				m, l := term(0, t)
				fmulLane(s, s, m, l)
				if withShift {
					m, l = term(2, t)
					fmulLane(free, shift, m, l)
					fadd(s, s, free)
				}
				m, l = term(1, t)
				fmulLane(free, offset, m, l)
				fadd(s, s, free)
				load(free, int8PY, at)
				fadd(s, free, s)
				store(s, int8PY, at)
			}
		}
	}
	ins("CMP %s, %s", int8Shifts, int8Blocks)
	ins("BLE shift")
	add(false)
	ins("B scaled")
	label("shift")
	add(true)
	label("scaled")
}

// weights loads codes of four rows, the odd and the even columns of eight, into d and the next register.
func (f *int8Tile) weights(d v, i int) {
	load(d, int8PW, 16*i)
	if f.bytes {
		load(d+1, int8PW, panelBytes+16*i)
		return
	}
	ins("VUSHR $4, V%d.B16, V%d.B16", d, d+1)
	ins("VAND V%d.B16, V%d.B16, V%d.B16", int8Mask, d, d)
}

// groupBytes is the size of eight columns of the panel.
func (f *int8Tile) groupBytes() int {
	if f.bytes {
		return 2 * panelBytes
	}
	return panelBytes
}

// int8NEON multiplies with what every arm64 has. Sixteen products of codes 0..15, so of eight groups, fit an uint16; of
// signed bytes just one does, and 128 is taken from the codes of activations.
func int8NEON(bytes bool) {
	f := &int8Tile{tokens: 1, rows: 16, bytes: bytes, lifted: bytes}
	const product, lift, w, odd, even = v(8), v(16), v(24), v(28), v(29)
	step := func(low, high func(d, n, m v)) {
		ins("VLD1R.P 4(%s), [V%d.S4]", int8PX, odd)
		ins("VLD1R.P 4(%s), [V%d.S4]", int8PX, even)
		if bytes {
			flip(odd)
			flip(even)
		}
		for i := range v(4) {
			f.weights(w, int(i))
			for e := range v(2) {
				low(product+2*i, w+e, odd+e)
				high(product+2*i+1, w+e, odd+e)
				if bytes {
					sadalp(2*i, product+2*i)
					sadalp(2*i+1, product+2*i+1)
					saddlp(w+e, w+e)
					sadalp(lift+i, w+e)
				}
			}
		}
		ins("ADD $%d, %s", f.groupBytes(), int8PW)
	}
	pairs := func() {
		for i := range v(4) {
			addp(2*i, 2*i, 2*i+1)
		}
	}
	f.loop = func() {
		for i := range v(8) {
			zero(i)
		}
		ins("MOVD %s, %s", int8Groups, int8Left)
		if bytes {
			for i := range v(4) {
				zero(lift + i)
			}
			label("group")
			step(smull, smull2)
			ins("SUBS $1, %s", int8Left)
			ins("BNE group")
			pairs()
			f.lift(lift)
			return
		}
		label("narrow")
		for i := range v(8) {
			zero(product + i)
		}
		ins("MOVD $8, %s", int8Inner)
		ins("CMP %s, %s", int8Inner, int8Left)
		ins("CSEL LT, %s, %s, %s", int8Left, int8Inner, int8Inner)
		ins("SUB %s, %s", int8Inner, int8Left)
		label("group")
		step(umlal, umlal2)
		ins("SUBS $1, %s", int8Inner)
		ins("BNE group")
		for i := range v(8) {
			uadalp(i, product+i)
		}
		ins("CBNZ %s, narrow", int8Left)
		pairs()
	}
	f.sum = func(t, i int) (v, v) { return v(2 * i), v(2*i + 1) }
	f.emit("NEON")
}

// flip takes 128 from codes of activations.
func flip(d v) { ins("VEOR V%d.B16, V%d.B16, V%[2]d.B16", int8Flip, d) }

// lift adds 128 times the sums of weights, which are in the registers from first on.
func (f *int8Tile) lift(first v) {
	for i := range f.rows / 4 {
		d := first + v(i)
		ins("VSHL $7, V%d.S4, V%[1]d.S4", d)
		for t := range f.tokens {
			s, _ := f.sum(t, i)
			ins("VADD V%d.S4, V%d.S4, V%[2]d.S4", d, s)
		}
	}
}

// int8Dot has a sum for each row and token. Without an instruction for signed with unsigned bytes 128 is taken from the
// codes of activations, and 128 times the sum of the weights added at the end.
func int8Dot(tier string, tokens int, bytes, mixed bool) {
	f := &int8Tile{tokens: tokens, rows: 32, bytes: bytes, lifted: bytes && !mixed}
	if tokens > 2 {
		f.rows = 64 / tokens
	}
	vectors := f.rows / 4
	const lift, w = v(16), v(24)
	codes := v(28)
	if tokens > 2 {
		codes = 20
	}
	sum := func(t, i int) v { return v(t*vectors + i) }
	dot := udot
	switch {
	case mixed:
		dot = sudot
	case bytes:
		dot = sdot
	}
	f.loop = func() {
		for i := range tokens * vectors {
			zero(v(i))
		}
		if f.lifted {
			for i := range vectors {
				zero(lift + v(i))
			}
		}
		ins("MOVD %s, %s", int8Groups, int8Left)
		label("group")
		name, size := "FMOVQ", 16
		if tokens == 1 {
			name, size = "FMOVD", 8
		}
		for i := range 8 * tokens / size {
			d := codes + v(i)
			ins("%s.P %d(%s), %s", name, size, int8PX, d.f())
			if f.lifted {
				flip(d)
			}
		}
		for i := 0; i < vectors; i += 2 {
			f.weights(w, i)
			f.weights(w+2, i+1)
			for e := range 2 {
				for t := range tokens {
					at := e*tokens + t
					for j := range 2 {
						dot(sum(t, i+j), w+v(2*j+e), codes+v(at/4), at%4)
					}
				}
				for j := range v(2) {
					if f.lifted {
						sdot(lift+v(i)+j, w+2*j+v(e), int8Ones, 0)
					}
				}
			}
		}
		ins("ADD $%d, %s", f.groupBytes(), int8PW)
		ins("SUBS $1, %s", int8Left)
		ins("BNE group")
		if f.lifted {
			f.lift(lift)
		}
	}
	f.sum = func(t, i int) (v, v) { return sum(t, i), 29 }
	f.emit(tier)
}

// int8MMLA has a sum for two tokens and two rows in each accumulator.
func int8MMLA(bytes bool) {
	const tokens, w, x = 8, v(24), v(16)
	f := &int8Tile{tokens: tokens, rows: 8, bytes: bytes}
	mmla := ummla
	if bytes {
		mmla = usmmla
	}
	sum := func(pair, rows int) v { return v(4*pair + rows) }
	f.loop = func() {
		for i := range v(16) {
			zero(i)
		}
		ins("MOVD %s, %s", int8Groups, int8Left)
		label("group")
		for i := range v(4) { // two tokens each
			ins("FMOVQ.P 16(%s), %s", int8PX, (x + i).f())
		}
		for i := range v(2) {
			f.weights(28, int(i))
			zip1(w+2*i, 28, 29)
			zip2(w+2*i+1, 28, 29)
		}
		for pair := range 4 {
			for rows := range 4 {
				mmla(sum(pair, rows), x+v(pair), w+v(rows))
			}
		}
		ins("ADD $%d, %s", f.groupBytes(), int8PW)
		ins("SUBS $1, %s", int8Left)
		ins("BNE group")
	}
	f.sum = func(t, i int) (v, v) {
		a, b := sum(t/2, 2*i), sum(t/2, 2*i+1)
		if t%2 == 0 {
			lower(22, a, b)
			return 22, 29
		}
		upper(23, a, b)
		return 23, 29
	}
	f.emit("I8MM")
}

// int8Quantize turns float32 into codes plus 128, odd columns of eight before even ones.
func int8Quantize(away bool) {
	name := "int8RoundEvenNEON"
	if away {
		name = "int8RoundAwayNEON"
	}
	begin(name, "(dst *byte, x *float32, n int, half int, rest int, quant float32, bias float32) (sum int)")
	const dst, x, n, half, rest, quant, bias, sum = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7)
	const q, b, low, high, point5, sign, flip, total = v(16), v(17), v(18), v(19), v(20), v(21), v(22), v(23)
	broadcast(q, quant)
	broadcast(b, bias)
	ins("VMOVI $128, V%d.B8", flip)
	zero(total)
	if away {
		for _, c := range []struct {
			d     v
			value uint32
		}{{low, 0xc3000000}, {high, 0x42fe0000}, {point5, 0x3f000000}, {sign, 0x80000000}} {
			ins("MOVD $%#x, %s", c.value, sum)
			broadcast(c.d, sum)
		}
	}
	label("loop")
	ins("VLD1.P 32(%s), [V0.S4, V1.S4]", x)
	for i := range v(2) {
		fmul(i, i, q)
	}
	for i := range v(2) {
		fadd(i, i, b)
	}
	for i := range v(2) {
		if !away {
			fcvtns(i, i)
			continue
		}
		fmax(i, i, low)
		fmin(i, i, high)
		ins("VAND V%d.B16, V%d.B16, V%d.B16", sign, i, 2+i)
		ins("VORR V%d.B16, V%d.B16, V%d.B16", point5, 2+i, 2+i)
		fadd(i, i, 2+i)
		two(0x4ea1b800, "FCVTZS", "4S", "4S", i, i)
	}
	two(0x0e614800, "SQXTN", "4H", "4S", 4, 0)
	two(0x4e614800, "SQXTN2", "8H", "4S", 4, 1)
	two(0x0e214800, "SQXTN", "8B", "8H", 4, 4)
	ins("VEOR V%d.B8, V4.B8, V4.B8", flip)
	ins("VUZP2 V4.B8, V4.B8, V5.B8")
	ins("VUZP1 V4.B8, V4.B8, V6.B8")
	two(0x2e202800, "UADDLP", "4H", "8B", 4, 4)
	two(0x2e606800, "UADALP", "2S", "4H", total, 4)
	ins("FMOVS F5, (%s)", dst)
	ins("ADD %s, %s", half, dst)
	ins("FMOVS F6, (%s)", dst)
	ins("ADD %s, %s", rest, dst)
	ins("SUBS $8, %s", n)
	ins("BNE loop")
	two(0x2ea02800, "UADDLP", "1D", "2S", total, total)
	ins("VMOV V%d.D[0], %s", total, sum)
	ins("MOVD %s, sum+48(FP)", sum)
	ret()
}

// int8Range finds the smallest and the largest element.
func int8Range() {
	begin("int8RangeNEON", "(x *float32, n int) (lo float32, hi float32)")
	const x, n = r(0), r(1)
	ins("VLD1 (%s), [V0.S4, V1.S4]", x)
	move(2, 0)
	move(3, 1)
	label("loop")
	ins("VLD1.P 32(%s), [V4.S4, V5.S4]", x)
	for i := range v(2) {
		fmin(i, i, 4+i)
		fmax(2+i, 2+i, 4+i)
	}
	ins("SUBS $8, %s", n)
	ins("BNE loop")
	fmin(0, 0, 1)
	fmax(2, 2, 3)
	ins("WORD $0x6eb0f800 // FMINV S0, V0.4S")
	ins("WORD $0x6e30f842 // FMAXV S2, V2.4S")
	ins("FMOVS F0, lo+16(FP)")
	ins("FMOVS F2, hi+20(FP)")
	ret()
}
