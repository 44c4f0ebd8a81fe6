package main

import "fmt"

// panelRows is PanelRows of package kernel.
const panelRows = 32

func gemm() {
	for rows := 1; rows <= 12; rows++ {
		gemmTile(rows)
	}
	gemmRow()
	transpose4()
}

// gemmTile computes rows x panelRows sums of k positions, as many columns at a time as fit 24 registers.
func gemmTile(rows int) {
	columns := 8
	switch {
	case rows <= 3:
		columns = 32
	case rows <= 6:
		columns = 16
	}
	begin(fmt.Sprintf("gemm%dx%dNEON", rows, panelRows), "(c *float32, a *float32, b *float32, k int, ldc int, add bool)")
	const c, a, b, k, ldc, add, pa, pb, left, pc, groups = r(0), r(1), r(2), r(3), r(4), r(5), r(6), r(7), r(8), r(9), r(10)
	vectors := columns / 4
	sum := func(row, i int) v { return v(row*vectors + i) }
	ins("LSL $2, %s", ldc)
	if columns < panelRows {
		ins("MOVD $%d, %s", panelRows/columns, groups)
		label("columns")
	}
	for row := range rows {
		for i := range vectors {
			zero(sum(row, i))
		}
	}
	ins("MOVD %s, %s", a, pa)
	ins("MOVD %s, %s", b, pb)
	ins("MOVD %s, %s", k, left)
	label("position")
	// The rows of a, four, two or one in a register: nothing after the last position may be read.
	type element struct {
		reg  v
		lane int
	}
	var elements []element
	next := v(28)
	for row := 0; row < rows; {
		size, name := 4, "FMOVQ"
		switch {
		case rows-row < 2:
			size, name = 1, "FMOVS"
		case rows-row < 4:
			size, name = 2, "FMOVD"
		}
		ins("%s.P %d(%s), %s", name, 4*size, pa, next.f())
		for i := range size {
			elements = append(elements, element{next, i})
		}
		row += size
		next++
	}
	for lo := 0; lo < vectors; lo += 4 {
		part := min(4, vectors-lo)
		for i := 0; i < part; i += 2 {
			ins("FLDPQ %d(%s), (F%d, F%d)", 16*(lo+i), pb, 24+i, 25+i)
		}
		for row, e := range elements {
			for i := range part {
				fmlaLane(sum(row, lo+i), v(24+i), e.reg, e.lane)
			}
		}
	}
	ins("ADD $%d, %s", 4*panelRows, pb)
	ins("SUBS $1, %s", left)
	ins("BNE position")
	ins("MOVD %s, %s", c, pc)
	ins("CBZ %s, store", add)
	for row := range rows {
		for i := 0; i < vectors; i += 2 {
			ins("FLDPQ %d(%s), (F24, F25)", 16*i, pc)
			fadd(sum(row, i), 24, sum(row, i))
			fadd(sum(row, i+1), 25, sum(row, i+1))
		}
		if row+1 < rows {
			ins("ADD %s, %s", ldc, pc)
		}
	}
	ins("MOVD %s, %s", c, pc)
	label("store")
	for row := range rows {
		for i := 0; i < vectors; i += 2 {
			ins("FSTPQ (%s, %s), %d(%s)", sum(row, i).f(), sum(row, i+1).f(), 16*i, pc)
		}
		if row+1 < rows {
			ins("ADD %s, %s", ldc, pc)
		}
	}
	if columns < panelRows {
		ins("ADD $%d, %s", 4*columns, b)
		ins("ADD $%d, %s", 4*columns, c)
		ins("SUBS $1, %s", groups)
		ins("BNE columns")
	}
	ret()
}

// gemmRow computes one row of two panels, ldb elements apart.
func gemmRow() {
	begin(fmt.Sprintf("gemm1x%dNEON", 2*panelRows), "(c *float32, a *float32, b *float32, k int, ldb int, add bool)")
	const c, a, k, add, left = r(0), r(1), r(3), r(5), r(6)
	b := []r{2, 4}
	ins("ADD %s<<2, %s, %s", b[1], b[0], b[1])
	for i := range v(16) {
		zero(i)
	}
	ins("MOVD %s, %s", k, left)
	label("position")
	ins("VLD1R.P 4(%s), [V24.S4]", a)
	for p, base := range b {
		for i := 0; i < 8; i += 2 {
			ins("FLDPQ %d(%s), (F%d, F%d)", 16*i, base, 16+i, 17+i)
		}
		ins("ADD $%d, %s", 4*panelRows, base)
		for i := range v(8) {
			fmla(v(8*p)+i, 16+i, 24)
		}
	}
	ins("SUBS $1, %s", left)
	ins("BNE position")
	ins("CBZ %s, store", add)
	for i := 0; i < 16; i += 2 {
		ins("FLDPQ %d(%s), (F24, F25)", 16*i, c)
		fadd(v(i), 24, v(i))
		fadd(v(i+1), 25, v(i+1))
	}
	label("store")
	for i := 0; i < 16; i += 2 {
		ins("FSTPQ (F%d, F%d), %d(%s)", i, i+1, 16*i, c)
	}
	ret()
}

// transpose4 writes blocks of four elements of four rows as columns.
func transpose4() {
	begin("transpose4NEON", "(dst *float32, src *float32, blocks int, lddst int, ldsrc int)")
	const dst, src, blocks, lddst, ldsrc = r(0), r(1), r(2), r(3), r(4)
	rows := []r{1, 5, 6, 7}
	ins("LSL $2, %s", lddst)
	ins("LSL $2, %s", ldsrc)
	for i, row := range rows[1:] {
		ins("ADD %s, %s, %s", ldsrc, rows[i], row)
	}
	label("block")
	for i, row := range rows {
		ins("FMOVQ.P 16(%s), F%d", row, i)
	}
	for i := 0; i < 4; i += 2 {
		ins("VTRN1 V%d.S4, V%d.S4, V%d.S4", i+1, i, 4+i)
		ins("VTRN2 V%d.S4, V%d.S4, V%d.S4", i+1, i, 5+i)
	}
	for i := range 2 {
		ins("VTRN1 V%d.D2, V%d.D2, V%d.D2", 6+i, 4+i, i)
		ins("VTRN2 V%d.D2, V%d.D2, V%d.D2", 6+i, 4+i, 2+i)
	}
	for i := range v(4) {
		store(i, dst, 0)
		ins("ADD %s, %s", lddst, dst)
	}
	ins("SUBS $1, %s", blocks)
	ins("BNE block")
	ret()
}
