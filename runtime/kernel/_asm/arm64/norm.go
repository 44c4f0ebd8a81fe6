package main

func norm() {
	engineSquares()
	normalize(false)
	normalize(true)
}

// engineSquares adds up squares in eight lanes, products and sums rounded.
func engineSquares() {
	begin("engineSquaresNEON", "(lanes *float32, x *float32, rows int, width int, stride int)")
	const lanes, x, rows, width, stride, px, left = r(0), r(1), r(2), r(3), r(4), r(5), r(6)
	ins("LSL $2, %s", stride)
	label("row")
	zero(0)
	zero(1)
	ins("MOVD %s, %s", x, px)
	ins("MOVD %s, %s", width, left)
	label("loop")
	ins("VLD1.P 32(%s), [V2.S4, V3.S4]", px)
	for i := range v(2) {
		fmul(2+i, 2+i, 2+i)
	}
	for i := range v(2) {
		fadd(i, i, 2+i)
	}
	ins("SUBS $8, %s", left)
	ins("BNE loop")
	ins("VST1.P [V0.S4, V1.S4], 32(%s)", lanes)
	ins("ADD %s, %s", stride, x)
	ins("SUBS $1, %s", rows)
	ins("BNE row")
	ret()
}

// normalize multiplies by gamma and inv; packed has the products in the other order.
func normalize(packed bool) {
	name := "normalizeNEON"
	if packed {
		name = "normalizePackedNEON"
	}
	begin(name, "(dst *float32, x *float32, gamma *float32, inv *float32, rows int, columns int, stride int)")
	const dst, x, gamma, inv, rows, columns, stride, pd, px, pg, left = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7), r(8), r(9), r(10)
	ins("LSL $2, %s", stride)
	zero(5)
	label("row")
	ins("VLD1R.P 4(%s), [V4.S4]", inv)
	ins("MOVD %s, %s", dst, pd)
	ins("MOVD %s, %s", x, px)
	ins("MOVD %s, %s", gamma, pg)
	ins("MOVD %s, %s", columns, left)
	label("loop")
	ins("VLD1.P 32(%s), [V0.S4, V1.S4]", px)
	ins("VLD1.P 32(%s), [V2.S4, V3.S4]", pg)
	for i := range v(2) {
		first, second := 2+i, v(4)
		if packed {
			first, second = second, first
		}
		fmul(i, i, first)
		fmul(i, i, second)
		fadd(i, i, 5) // turns -0 into 0
	}
	ins("VST1.P [V0.S4, V1.S4], 32(%s)", pd)
	ins("SUBS $8, %s", left)
	ins("BNE loop")
	ins("ADD %s, %s", stride, dst)
	ins("ADD %s, %s", stride, x)
	ins("SUBS $1, %s", rows)
	ins("BNE row")
	ret()
}
