package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func gemmBF16() {
	gemmTiles512("BF16", func(ops ...Op) {
		vdpbf16ps(ops[0].(reg.VecPhysical), ops[1].(reg.VecPhysical), ops[2].(reg.VecPhysical))
	})
}

// vdpbf16ps adds to every float32 of sum the products of a pair of bf16, by EVEX.512.F3.0F38.W0 52 /r, which neither avo
// nor Go's assembler has.
func vdpbf16ps(b, a, sum reg.VecPhysical) {
	number := func(r reg.VecPhysical) byte { return byte(r.ID().Index()) }
	d, v, m := number(sum), number(a), number(b)
	inverted := func(r byte, bit, to uint) byte { return (^r >> bit & 1) << to }
	for _, x := range []byte{
		0x62,
		inverted(d, 3, 7) | inverted(m, 4, 6) | inverted(m, 3, 5) | inverted(d, 4, 4) | 2,
		(^v&15)<<3 | 4 | 2,
		2<<5 | inverted(v, 4, 3),
		0x52,
		0xc0 | d&7<<3 | m&7,
	} {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(x)}})
	}
}
