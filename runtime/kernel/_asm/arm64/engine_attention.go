package main

import "fmt"

// tileColumns is the constant of that name in package kernel: a row of a tile fills four registers.
const tileColumns = 16

func engineAttention() {
	for _, rows := range []int{1, 2, 4} {
		tileSums(rows, false)
	}
	tileSums(1, true)
}

// tileSums multiplies rows of x with a tile. With one row quad keeps four sums a column.
func tileSums(rows int, quad bool) {
	name := fmt.Sprintf("tileSum%dNEON", rows)
	if quad {
		name = "tileQuadNEON"
	}
	begin(name, "(dst *float32, x *float32, tile *float32, factors *float32, n int, dstStride int, xStride int, scale float32)")
	const dst, x, tile, factors, n, dstStride, xStride, scale, left = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7), r(8)
	const columns, element = v(16), v(20)
	px := []r{x, 9, 10, 11}[:rows]
	sum := func(row, i int) v { return v(4*row + i) }
	sums := 4 * rows
	if quad {
		sums = 16
	}
	ins("LSL $2, %s", dstStride)
	ins("LSL $2, %s", xStride)
	for row := range rows - 1 {
		ins("ADD %s, %s, %s", xStride, px[row], px[row+1])
	}
	for i := range sums {
		zero(v(i))
	}
	ins("LSR $2, %s, %s", n, left)
	ins("CBZ %s, last", left)
	label("four")
	for row, p := range px {
		ins("FMOVQ.P 16(%s), %s", p, (element + v(row)).f())
	}
	for l := range 4 {
		ins("VLD1.P 64(%s), [V%d.S4, V%d.S4, V%d.S4, V%d.S4]", tile, columns, columns+1, columns+2, columns+3)
		for row := range rows {
			for i := range 4 {
				to := sum(row, i)
				if quad {
					to = v(4*l + i)
				}
				fmlaLane(to, columns+v(i), element+v(row), l)
			}
		}
	}
	ins("SUBS $1, %s", left)
	ins("BNE four")
	label("last")
	if quad {
		for i := range v(4) {
			fadd(i, i, 8+i)
			fadd(4+i, 4+i, 12+i)
			fadd(i, i, 4+i)
		}
	}
	ins("ANDS $3, %s, %s", n, left)
	ins("BEQ write")
	label("one")
	for row, p := range px {
		ins("FMOVS.P 4(%s), %s", p, (element + v(row)).f())
	}
	ins("VLD1.P 64(%s), [V%d.S4, V%d.S4, V%d.S4, V%d.S4]", tile, columns, columns+1, columns+2, columns+3)
	for row := range rows {
		for i := range 4 {
			fmlaLane(sum(row, i), columns+v(i), element+v(row), 0)
		}
	}
	ins("SUBS $1, %s", left)
	ins("BNE one")
	label("write")
	ins("CBNZ %s, blend", factors)
	broadcast(element, scale)
	each := func(f func(row, i int)) {
		for row := range rows {
			for i := range 4 {
				f(row, i)
			}
		}
	}
	each(func(row, i int) { fmul(sum(row, i), sum(row, i), element) })
	ins("B store")
	label("blend")
	ins("MOVD %s, %s", dst, left)
	for row := range rows {
		ins("FMOVS.P 4(%s), %s", factors, element.f())
		for i := range 4 {
			load(columns+v(i), left, 16*i)
		}
		for i := range v(4) {
			fmulLane(columns+i, columns+i, element, 0)
		}
		for i := range 4 {
			fadd(sum(row, i), sum(row, i), columns+v(i))
		}
		if row+1 < rows {
			ins("ADD %s, %s", dstStride, left)
		}
	}
	label("store")
	for row := range rows {
		for i := range 4 {
			store(sum(row, i), dst, 16*i)
		}
		if row+1 < rows {
			ins("ADD %s, %s", dstStride, dst)
		}
	}
	ret()
}
