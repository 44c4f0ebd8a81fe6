package main

import "math"

func engine() {
	bits := math.Float32bits
	constants("engineExpTerms", bits(-87), bits(87), bits(0x1.715476p0), bits(0x1.62e43p-1), bits(0.25),
		bits(float32(1)/120), bits(float32(1)/24), bits(float32(1)/6), bits(0.5), bits(1), 127)
	for _, name := range []string{"engineExps", "engineSiLU", "engineSiLUMul"} {
		engineExps(name)
	}
}

// Constants of the exponential.
const expLow, expHigh, expInvLn2, expLn2, expQuarter, exp120, exp24, exp6, expHalf, expOne, expBias = v(16), v(17), v(18), v(19), v(20),
	v(21), v(22), v(23), v(24), v(25), v(26)

// loadExp loads the constants.
func loadExp(p r) {
	ins("MOVD $engineExpTerms<>(SB), %s", p)
	for c := expLow; c <= expBias; c++ {
		ins("VLD1R.P 4(%s), [V%d.S4]", p, c)
	}
}

// exp turns V0 and V1 into their engineExp, in V4 and V5; V2 to V7 change.
func exp() {
	both := func(f func(t, k, p v)) {
		f(0, 2, 4)
		f(1, 3, 5)
	}
	both(func(t, k, p v) { fmax(t, t, expLow) })
	both(func(t, k, p v) { fmin(t, t, expHigh) })
	both(func(t, k, p v) { fmul(k, t, expInvLn2) })
	both(func(t, k, p v) { fcvtns(k, k) })
	both(func(t, k, p v) { scvtf(p, k) })
	both(func(t, k, p v) { fmls(t, p, expLn2) })
	both(func(t, k, p v) { fmul(t, t, expQuarter) })
	both(func(t, k, p v) { move(p, exp24) })
	both(func(t, k, p v) { fmla(p, exp120, t) })
	// A sum needs a register of its own: FMLA adds to its destination.
	from, to := v(4), v(6)
	for _, c := range []v{exp6, expHalf, expOne, expOne} {
		for i := range v(2) {
			move(to+i, c)
		}
		for i := range v(2) {
			fmla(to+i, from+i, i)
		}
		from, to = to, from
	}
	both(func(t, k, p v) { fmul(p, p, p) })
	both(func(t, k, p v) { fmul(p, p, p) })
	both(func(t, k, p v) { ins("VADD V%d.S4, V%d.S4, V%d.S4", expBias, k, k) })
	both(func(t, k, p v) { ins("VSHL $23, V%d.S4, V%d.S4", k, k) })
	both(func(t, k, p v) { fmul(p, k, p) })
}

// engineExps emits a function of n elements: the exponential, engineSiLU, which divides by 1 + the exponential of the negative,
// or engineSiLUMul, which multiplies that by y.
func engineExps(name string) {
	silu, product, signature := name != "engineExps", name == "engineSiLUMul", "(dst *float32, x *float32, n int)"
	const dst, x, y = r(0), r(1), r(2)
	n := r(2)
	if product {
		signature, n = "(dst *float32, x *float32, y *float32, n int)", 3
	}
	begin(name+"NEON", signature)
	loadExp(4)
	label("loop")
	ins("VLD1.P 32(%s), [V8.S4, V9.S4]", x)
	for i := range v(2) {
		if silu {
			two(0x6ea0f800, "FNEG", "4S", "4S", i, 8+i)
		} else {
			move(i, 8+i)
		}
	}
	exp()
	for i := range v(2) {
		if silu {
			fadd(4+i, 4+i, expOne)
			three(0x6e20fc00, "FDIV", "4S", "4S", 4+i, 8+i, 4+i)
		}
	}
	if product {
		ins("VLD1.P 32(%s), [V2.S4, V3.S4]", y)
		for i := range v(2) {
			fmul(4+i, 4+i, 2+i)
		}
	}
	ins("VST1.P [V4.S4, V5.S4], 32(%s)", dst)
	ins("SUBS $8, %s", n)
	ins("BNE loop")
	ret()
}
