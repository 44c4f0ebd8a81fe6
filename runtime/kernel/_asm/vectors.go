package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectors is a width of SIMD registers, in float32.
type vectors struct {
	tier  string
	reg   []reg.VecPhysical
	lanes int
}

var (
	avx2   = vectors{"AVX2", y, 8}
	avx512 = vectors{"AVX512", z, 16}
	// half is avx512 at the width of avx2: the low halves of the same registers.
	half = vectors{"AVX512", []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10,
		reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
		reg.Y16, reg.Y17, reg.Y18, reg.Y19, reg.Y20, reg.Y21, reg.Y22, reg.Y23, reg.Y24, reg.Y25, reg.Y26, reg.Y27, reg.Y28, reg.Y29, reg.Y30, reg.Y31}, 8}
)

// bytes is the size of a register.
func (v vectors) bytes() int { return 4 * v.lanes }

// steps are the loops over a multiple of eight elements: several registers at a time, then one, then eight elements.
func (v vectors) steps(unroll int) []step {
	s := []step{{v, unroll}, {v, 1}}
	if unroll == 1 {
		s = s[1:]
	}
	if v.lanes == 16 {
		s = append(s, step{half, 1})
	}
	return s
}

type step struct {
	vectors
	unroll int
}

// each emits the loops of steps. The body handles unroll registers; then the pointers move on.
func (v vectors) each(label string, unroll int, n reg.GPVirtual, pointers []reg.GPVirtual, body func(s step)) {
	for i, s := range v.steps(unroll) {
		loop := fmt.Sprintf("%s%d", label, i)
		size := s.lanes * s.unroll
		Label(loop)
		CMPQ(n, U32(size))
		JLT(LabelRef(loop + "done"))
		body(s)
		for _, p := range pointers {
			ADDQ(U32(4*size), p)
		}
		SUBQ(U32(size), n)
		JMP(LabelRef(loop))
		Label(loop + "done")
	}
}

// floats is a constant of 16 float32, of which narrower registers take the first.
func floats(name string, bits uint32) Mem { return words(name, repeat(bits, 16)...) }

// foldMax emits the largest of all lanes of the registers: VMAXPS or VPMAXUD. The result is lane 0 of the first register
// of x.
func foldMax(op func(ops ...Op), wide []reg.VecPhysical, width vectors, narrow reg.VecPhysical, lane0, tmp int) {
	for _, r := range wide[1:] {
		op(r, wide[0], wide[0])
	}
	if width.lanes == 16 {
		VEXTRACTF64X4(Imm(1), wide[0], y[tmp])
		op(y[tmp], y[lane0], y[lane0])
	}
	op(narrow, y[lane0], y[lane0])
	VEXTRACTF128(Imm(1), y[lane0], x[tmp])
	op(x[tmp], x[lane0], x[lane0])
	VPSHUFD(Imm(0x4e), x[lane0], x[tmp])
	op(x[tmp], x[lane0], x[lane0])
	VPSHUFD(Imm(0xb1), x[lane0], x[tmp])
	op(x[tmp], x[lane0], x[lane0])
}
