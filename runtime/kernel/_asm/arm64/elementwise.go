package main

// elementwise has loops over eight elements.
func elementwise() {
	const dst, x, y = r(0), r(1), r(2)
	loop := func(n r, body func()) {
		label("loop")
		ins("VLD1.P 32(%s), [V0.S4, V1.S4]", x)
		body()
		ins("VST1.P [V0.S4, V1.S4], 32(%s)", dst)
		ins("SUBS $8, %s", n)
		ins("BNE loop")
		ret()
	}
	for _, op := range []struct {
		name string
		do   func(d, n, m v)
	}{{"addNEON", fadd}, {"mulNEON", fmul}} {
		begin(op.name, "(dst *float32, x *float32, y *float32, n int)")
		loop(3, func() {
			ins("VLD1.P 32(%s), [V2.S4, V3.S4]", y)
			for i := range v(2) {
				op.do(i, i, 2+i)
			}
		})
	}
	begin("scaleNEON", "(dst *float32, x *float32, n int, factor float32)")
	broadcast(2, 3)
	loop(2, func() {
		for i := range v(2) {
			fmul(i, i, 2)
		}
	})
	begin("addScaledNEON", "(dst *float32, x *float32, n int, factor float32)")
	broadcast(2, 3)
	loop(2, func() {
		ins("VLD1 (%s), [V3.S4, V4.S4]", dst)
		for i := range v(2) {
			fmul(i, i, 2)
			fadd(i, 3+i, i)
		}
	})
}

// rotary turns pairs of elements that lie half a head apart.
func rotary() {
	begin("rotateNEON", "(dst *float32, x *float32, cos *float32, sin *float32, half int, heads int, dim int)")
	const dst, x, cos, sin, half, heads, dim, left = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7)
	// Pointers to both halves of x, cos, sin and dst.
	halves := []struct{ base, low, high r }{{x, 8, 9}, {cos, 10, 11}, {sin, 12, 13}, {dst, 14, 15}}
	ins("LSL $2, %s", half)
	ins("LSL $2, %s", dim)
	label("head")
	for _, p := range halves {
		ins("MOVD %s, %s", p.base, p.low)
		ins("ADD %s, %s, %s", half, p.base, p.high)
	}
	ins("MOVD %s, %s", half, left)
	label("pair")
	for i, p := range halves[:3] {
		ins("FMOVQ.P 16(%s), F%d", p.low, 2*i)
		ins("FMOVQ.P 16(%s), F%d", p.high, 2*i+1)
	}
	fmul(6, 0, 2)
	fmul(7, 1, 4)
	fsub(6, 6, 7)
	fmul(7, 1, 3)
	fmul(16, 0, 5)
	fadd(7, 7, 16)
	ins("FMOVQ.P F6, 16(%s)", halves[3].low)
	ins("FMOVQ.P F7, 16(%s)", halves[3].high)
	ins("SUBS $16, %s", left)
	ins("BNE pair")
	ins("ADD %s, %s", dim, dst)
	ins("ADD %s, %s", dim, x)
	ins("SUBS $1, %s", heads)
	ins("BNE head")
	ret()
}
