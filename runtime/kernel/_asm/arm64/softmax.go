package main

import "math"

// softmax emits what computes with Exp of package kernel: the same operations in the same order. Functions take n elements, a multiple of
// eight and not 0. Eight of them are four vectors of float64, and so are the lanes of a sum, which stay in memory.
func softmax() {
	const ln2Hi = 0x1.62e42feep-1
	doubles("exp64Terms", math.Log2E, 0.5, ln2Hi, math.Ln2-ln2Hi,
		1.0/6227020800, 1.0/479001600, 1.0/39916800, 1.0/3628800, 1.0/362880, 1.0/40320,
		1.0/5040, 1.0/720, 1.0/120, 1.0/24, 1.0/6, 1.0/2, 1, math.Float64frombits(1023))
	doubles("exp64Limits", -700, -60, -746, 710, 700, math.Inf(1))
	sumExp64()
	softmaxExp64()
	exponentsAndSums64()
	exps64(false)
	exps64(true)
	divergence64()
	silu64()
	exactScale64()
}

// doubles is read-only data of float64.
func doubles(name string, values ...float64) {
	var words []uint32
	for _, x := range values {
		bits := math.Float64bits(x)
		words = append(words, uint32(bits), uint32(bits>>32))
	}
	constants(name, words...)
}

// Places of limits.
const limitLowest, limitCut, limitLeast, limitMost, limitPlus, limitInfinity = 0, 8, 16, 24, 32, 40

// The registers of vector i: square is r*r, odd and exp are the two halves of the polynomial, and arg becomes what rounding took from r.
func arg64(i v) v    { return i }
func r64(i v) v      { return 4 + i }
func square64(i v) v { return 8 + i }
func odd64(i v) v    { return 12 + i }
func exp64(i v) v    { return 16 + i }
func k64(i v) v      { return 20 + i }

func four(f func(i v)) {
	for i := range v(4) {
		f(i)
	}
}

func faddD(d, n, m v)  { three(0x4e60d400, "FADD", "2D", "2D", d, n, m) }
func fsubD(d, n, m v)  { three(0x4ee0d400, "FSUB", "2D", "2D", d, n, m) }
func fmulD(d, n, m v)  { three(0x6e60dc00, "FMUL", "2D", "2D", d, n, m) }
func fdivD(d, n, m v)  { three(0x6e60fc00, "FDIV", "2D", "2D", d, n, m) }
func fmaxD(d, n, m v)  { three(0x4e60f400, "FMAX", "2D", "2D", d, n, m) }
func fminD(d, n, m v)  { three(0x4ee0f400, "FMIN", "2D", "2D", d, n, m) }
func fmlsD(d, n, m v)  { three(0x4ee0cc00, "FMLS", "2D", "2D", d, n, m) }
func fcmgtD(d, n, m v) { three(0x6ee0e400, "FCMGT", "2D", "2D", d, n, m) } // all ones where n > m
func bic(d, n, m v)    { three(0x4e601c00, "BIC", "16B", "16B", d, n, m) } // n without the bits of m
func bit(d, n, m v)    { three(0x6ea01c00, "BIT", "16B", "16B", d, n, m) } // n where m has bits
func fnegD(d, n v)     { two(0x6ee0f800, "FNEG", "2D", "2D", d, n) }
func frintmD(d, n v)   { two(0x4e619800, "FRINTM", "2D", "2D", d, n) } // down
func fcvtzsD(d, n v)   { two(0x4ee1b800, "FCVTZS", "2D", "2D", d, n) }
func fcvtl(d, n v)     { two(0x0e617800, "FCVTL", "2D", "2S", d, n) }
func fcvtl2(d, n v)    { two(0x4e617800, "FCVTL2", "2D", "4S", d, n) }
func fcvtn(d, n v)     { two(0x0e616800, "FCVTN", "2S", "2D", d, n) }
func fcvtn2(d, n v)    { two(0x4e616800, "FCVTN2", "4S", "2D", d, n) }
func sshrOne(d, n v)   { two(0x4f7f0400, "SSHR #1,", "2D", "2D", d, n) }

// number puts a float64 parameter in both lanes.
func number(d v, n r) { ins("VDUP %s, V%d.D2", n, d) }

// limit loads a limit into both lanes.
func limit(d v, at int) {
	ins("MOVD $exp64Limits<>+%d(SB), R15", at)
	ins("VLD1R (R15), [V%d.D2]", d)
}

// widen loads eight float32 as the registers that to names.
func widen(from r, to func(i v) v) {
	ins("VLD1 (%s), [V24.S4, V25.S4]", from)
	widened(24, to)
}

// widened turns the eight float32 of two registers into the registers that to names.
func widened(from v, to func(i v) v) {
	for i := range v(2) {
		fcvtl(to(2*i), from+i)
		fcvtl2(to(2*i+1), from+i)
	}
}

// narrow rounds the registers exp to eight float32, in V24 and V25.
func narrow() {
	for i := range v(2) {
		fcvtn(24+i, exp64(2*i))
		fcvtn2(24+i, exp64(2*i+1))
	}
}

// addTo adds the registers exp to sums in memory; they change.
func addTo(sums r) {
	four(func(i v) {
		load(24, sums, 16*int(i))
		faddD(24, 24, exp64(i))
		store(24, sums, 16*int(i))
	})
}

// exponentials64 turns the arguments, between -700 and 700 or of no interest, into exponentials, in the registers exp. With subnormal the
// arguments are those whose exponentials may also be subnormal or infinite.
func exponentials64(subnormal bool) {
	ins("MOVD $exp64Terms<>(SB), R15")
	turn := v(0)
	next := func() v {
		turn = 1 - turn
		ins("VLD1R.P 8(R15), [V%d.D2]", 24+turn)
		return 24 + turn
	}
	o := next()
	four(func(i v) { fmulD(k64(i), arg64(i), o) })
	o = next()
	four(func(i v) { faddD(k64(i), k64(i), o) })
	four(func(i v) { frintmD(k64(i), k64(i)) })
	o = next() // an exact product, so that fusing changes nothing
	four(func(i v) { fmlsD(arg64(i), k64(i), o) })
	o = next()
	four(func(i v) { fmulD(exp64(i), k64(i), o) })
	four(func(i v) { fsubD(r64(i), arg64(i), exp64(i)) })
	four(func(i v) { fmulD(square64(i), r64(i), r64(i)) })
	four(func(i v) { fsubD(arg64(i), arg64(i), r64(i)) })
	four(func(i v) { fsubD(arg64(i), arg64(i), exp64(i)) })
	o = next()
	four(func(i v) { fmulD(odd64(i), square64(i), o) })
	o = next()
	four(func(i v) { fmulD(exp64(i), square64(i), o) })
	for j := 2; j < 12; j += 2 {
		if j > 2 {
			four(func(i v) { fmulD(odd64(i), odd64(i), square64(i)) })
			four(func(i v) { fmulD(exp64(i), exp64(i), square64(i)) })
		}
		o = next()
		four(func(i v) { faddD(odd64(i), odd64(i), o) })
		o = next()
		four(func(i v) { faddD(exp64(i), exp64(i), o) })
	}
	four(func(i v) { fmulD(odd64(i), odd64(i), r64(i)) })
	four(func(i v) { faddD(exp64(i), exp64(i), odd64(i)) })
	four(func(i v) { fmulD(exp64(i), exp64(i), square64(i)) })
	four(func(i v) { faddD(exp64(i), exp64(i), arg64(i)) })
	four(func(i v) { faddD(exp64(i), exp64(i), r64(i)) })
	o = next()
	four(func(i v) { faddD(exp64(i), exp64(i), o) })
	o = next() // the bias of an exponent
	four(func(i v) { fcvtzsD(k64(i), k64(i)) })
	scale := func(by v) {
		ins("VADD V%d.D2, V%d.D2, V%d.D2", o, by, by)
		ins("VSHL $52, V%d.D2, V%d.D2", by, by)
	}
	if subnormal { // in two steps, of which the first is exact
		four(func(i v) { sshrOne(odd64(i), k64(i)) })
		four(func(i v) { ins("VSUB V%d.D2, V%d.D2, V%d.D2", odd64(i), k64(i), k64(i)) })
		four(func(i v) { scale(odd64(i)) })
		four(func(i v) { fmulD(exp64(i), exp64(i), odd64(i)) })
	}
	four(func(i v) { scale(k64(i)) })
	four(func(i v) { fmulD(exp64(i), exp64(i), k64(i)) })
}

// above computes exponentials, times factors if there are some, of the arguments that begin computes; 0 for arguments below the limit in
// V31. V26 to V29 hold the masks.
func above(begin, factors func()) {
	begin()
	four(func(i v) { fcmgtD(26+i, 31, arg64(i)) })
	exponentials64(false)
	factors()
	four(func(i v) { bic(exp64(i), exp64(i), 26+i) })
}

// eights repeats the body for n elements and moves pointers by so many bytes.
func eights(n r, pointers map[r]int, body func()) {
	label("loop")
	body()
	for p := range r(16) {
		if step := pointers[p]; step > 0 {
			ins("ADD $%d, %s", step, p)
		}
	}
	ins("SUBS $8, %s", n)
	ins("BNE loop")
	ret()
}

// sumExp64 adds exp((x-top)*scale).
func sumExp64() {
	begin("sumExpNEON", "(lanes *float64, x *float32, n int, top float64, scale float64)")
	const lanes, x, n = r(0), r(1), r(2)
	limit(31, limitLowest)
	eights(n, map[r]int{x: 32}, func() {
		above(func() {
			widen(x, arg64)
			number(24, 3)
			number(25, 4)
			four(func(i v) { fsubD(arg64(i), arg64(i), 24) })
			four(func(i v) { fmulD(arg64(i), arg64(i), 25) })
		}, func() {})
		addTo(lanes)
	})
}

// softmaxExp64 replaces x by exp(x-top) in float32 and adds that.
func softmaxExp64() {
	begin("softmaxExpNEON", "(lanes *float64, x *float32, n int, top float64)")
	const lanes, x, n = r(0), r(1), r(2)
	number(30, 3)
	limit(31, limitLowest)
	eights(n, map[r]int{x: 32}, func() {
		above(func() {
			widen(x, arg64)
			four(func(i v) { fsubD(arg64(i), arg64(i), 30) })
		}, func() {})
		narrow()
		ins("VST1 [V24.S4, V25.S4], (%s)", x)
		widened(24, exp64)
		addTo(lanes)
	})
}

// exponentsAndSums64 writes exp(x-top) in float32 to dst, adds that to rounded, and exp(x-top) as it is to lanes.
func exponentsAndSums64() {
	begin("exponentsAndSumsNEON", "(lanes *float64, rounded *float64, dst *float32, x *float32, n int, top float64)")
	const lanes, rounded, dst, x, n = r(0), r(1), r(2), r(3), r(4)
	number(30, 5)
	limit(31, limitLowest)
	eights(n, map[r]int{x: 32, dst: 32}, func() {
		above(func() {
			widen(x, arg64)
			four(func(i v) { fsubD(arg64(i), arg64(i), 30) })
		}, func() {})
		addTo(lanes)
		narrow()
		ins("VST1 [V24.S4, V25.S4], (%s)", dst)
		widened(24, exp64)
		addTo(rounded)
	})
}

// exps64 writes exp(x-shift) in float64, for all numbers; the wide one replaces numbers in float64.
func exps64(wide bool) {
	dst, x, n := r(0), r(1), r(2)
	steps := map[r]int{x: 32, dst: 64}
	if wide {
		begin("expsWideNEON", "(x *float64, n int)")
		x, n, steps = 0, 1, map[r]int{dst: 64}
	} else {
		begin("expsNEON", "(dst *float64, x *float32, n int, shift float64)")
		number(30, 3)
	}
	limit(28, limitLeast)
	limit(29, limitMost)
	eights(n, steps, func() {
		if wide {
			four(func(i v) { load(arg64(i), x, 16*int(i)) })
		} else {
			widen(x, arg64)
			four(func(i v) { fsubD(arg64(i), arg64(i), 30) })
		}
		four(func(i v) { fmaxD(arg64(i), arg64(i), 28) })
		four(func(i v) { fminD(arg64(i), arg64(i), 29) })
		exponentials64(true)
		four(func(i v) { store(exp64(i), dst, 16*int(i)) })
	})
}

// divergence64 adds exp(p-norm)*((p-q)+shift), without the terms where p-norm is below the cut.
func divergence64() {
	begin("divergenceNEON", "(lanes *float64, p *float32, q *float32, n int, norm float64, shift float64)")
	const lanes, p, q, n = r(0), r(1), r(2), r(3)
	number(30, 4)
	limit(31, limitCut)
	eights(n, map[r]int{p: 32, q: 32}, func() {
		above(func() {
			widen(p, arg64)
			four(func(i v) { fsubD(arg64(i), arg64(i), 30) })
		}, func() {
			widen(p, arg64)
			widen(q, odd64)
			number(24, 5)
			four(func(i v) { fsubD(odd64(i), arg64(i), odd64(i)) })
			four(func(i v) { faddD(odd64(i), odd64(i), 24) })
			four(func(i v) { fmulD(exp64(i), exp64(i), odd64(i)) })
		})
		addTo(lanes)
	})
}

// silu64 writes x / (1 + exp(-x)).
func silu64() {
	begin("exactSiLUNEON", "(dst *float32, x *float32, n int)")
	const dst, x, n = r(0), r(1), r(2)
	limit(28, limitLowest)
	limit(29, limitPlus)
	limit(30, limitInfinity)
	eights(n, map[r]int{x: 32, dst: 32}, func() {
		widen(x, arg64)
		four(func(i v) { fnegD(arg64(i), arg64(i)) })
		exponentials64(false)
		widen(x, arg64)
		// Beyond 700 the exponential is too large, or too small, to change the quotient.
		four(func(i v) { fcmgtD(odd64(i), 28, arg64(i)) })
		four(func(i v) { bit(exp64(i), 30, odd64(i)) })
		four(func(i v) { fcmgtD(odd64(i), arg64(i), 29) })
		four(func(i v) { bic(exp64(i), exp64(i), odd64(i)) })
		ins("MOVD $exp64Terms<>+%d(SB), R15", 16*8)
		ins("VLD1R (R15), [V24.D2]")
		four(func(i v) { faddD(exp64(i), exp64(i), 24) })
		four(func(i v) { fdivD(exp64(i), arg64(i), exp64(i)) })
		narrow()
		ins("VST1 [V24.S4, V25.S4], (%s)", dst)
	})
}

// exactScale64 multiplies in float64.
func exactScale64() {
	begin("exactScaleNEON", "(dst *float32, x *float32, n int, scale float64)")
	const dst, x, n = r(0), r(1), r(2)
	number(30, 3)
	eights(n, map[r]int{x: 32, dst: 32}, func() {
		widen(x, exp64)
		four(func(i v) { fmulD(exp64(i), exp64(i), 30) })
		narrow()
		ins("VST1 [V24.S4, V25.S4], (%s)", dst)
	})
}
