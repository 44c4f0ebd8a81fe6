package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// engineGelu holds the constants of EngineGELU.
type engineGelu struct {
	bounds                  [4]Mem
	cubic, root, half, term Mem
	up                      [2]Mem
	down                    [4]Mem
}

func newGelu() *engineGelu {
	constant := func(name string, v float32) Mem { return floats(name, math.Float32bits(v)) }
	last := constant("gelu135135", 135135)
	return &engineGelu{
		bounds: [4]Mem{constant("geluLow", -5), constant("geluHigh", 5), constant("geluMinusOne", -1), constant("geluOne", 1)},
		cubic:  constant("geluCubic", 0.044715), root: constant("geluRoot", 0.79788458), half: constant("geluHalf", 0.5),
		term: constant("gelu378", 378), up: [2]Mem{constant("gelu17325", 17325), last},
		down: [4]Mem{constant("gelu28", 28), constant("gelu3150", 3150), constant("gelu62370", 62370), last},
	}
}

// emit writes a function of n elements, with the operations of EngineGELU in their order.
func (c *engineGelu) emit(v vectors) {
	begin("engineGELU"+v.tier, "(dst *float32, x *float32, n int)")
	dst, px, n := param("dst"), param("x"), param("n")
	bounds := [4]int{12, 13, 14, 15} // registers of -5, 5, -1, 1
	unroll := 2
	if v.lanes == 16 {
		bounds, unroll = [4]int{28, 29, 30, 31}, 4
	}
	for i, m := range c.bounds {
		VMOVUPS(m, v.reg[bounds[i]])
	}
	v.each("loop", unroll, n, []reg.GPVirtual{dst, px}, func(s step) {
		all := func(f func(v, y, y2, w, z reg.VecPhysical)) {
			for u := range s.unroll {
				r := s.reg[5*u:]
				f(r[0], r[1], r[2], r[3], r[4])
			}
		}
		// A minimum or maximum of a NaN is the NaN, being the second source.
		limit := func(x reg.VecPhysical, low int) {
			VMAXPS(x, s.reg[bounds[low]], x)
			VMINPS(x, s.reg[bounds[low+1]], x)
		}
		for u := range s.unroll {
			VMOVUPS(Mem{Base: px, Disp: u * s.bytes()}, s.reg[5*u])
		}
		all(func(v, y, y2, w, z reg.VecPhysical) { VMULPS(v, v, y) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VMULPS(v, y, y) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VFMADD132PS(c.cubic, v, y) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VMULPS(c.root, y, y) })
		all(func(v, y, y2, w, z reg.VecPhysical) { limit(y, 0) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VMULPS(y, y, y2) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VADDPS(c.term, y2, w) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VMOVUPS(c.down[0], z) })
		for _, m := range c.up {
			all(func(v, y, y2, w, z reg.VecPhysical) { VFMADD213PS(m, y2, w) })
		}
		for _, m := range c.down[1:] {
			all(func(v, y, y2, w, z reg.VecPhysical) { VFMADD213PS(m, y2, z) })
		}
		all(func(v, y, y2, w, z reg.VecPhysical) { VMULPS(y, w, w) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VDIVPS(z, w, w) })
		all(func(v, y, y2, w, z reg.VecPhysical) { limit(w, 2) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VADDPS(s.reg[bounds[3]], w, w) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VMULPS(v, w, w) })
		all(func(v, y, y2, w, z reg.VecPhysical) { VMULPS(c.half, w, w) })
		for u := range s.unroll {
			VMOVUPS(s.reg[5*u+3], Mem{Base: dst, Disp: u * s.bytes()})
		}
	})
	end()
}
