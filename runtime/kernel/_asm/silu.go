package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// engineSilu holds the constants of engineExp, in the order of their use.
type engineSilu struct {
	low, high, invLn2, shift, ln2, quarter Mem
	terms                                  [6]Mem
	one, sign, bias                        Mem
}

func newSilu() *engineSilu {
	constant := func(name string, v float32) Mem { return floats(name, math.Float32bits(v)) }
	one := constant("siluOne", 1)
	return &engineSilu{
		low: constant("siluLow", -87), high: constant("siluHigh", 87),
		invLn2: constant("siluInvLn2", 0x1.715476p0), shift: constant("siluShift", 3<<22),
		ln2: constant("siluLn2", 0x1.62e43p-1), quarter: constant("siluQuarter", 0.25),
		terms: [6]Mem{
			constant("silu120", float32(1)/120), constant("silu24", float32(1)/24), constant("silu6", float32(1)/6),
			constant("siluHalf", 0.5), one, one,
		},
		one: one, sign: floats("siluSign", 1<<31), bias: floats("siluBias", 127),
	}
}

// emit writes a function of n elements: engineExps, engineSiLU, x / (1 + engineExp(-x)), or engineSiLUMul, which is that times
// y. 512-bit code holds all constants in registers.
func (c *engineSilu) emit(v vectors, name string) {
	silu, product := name != "engineExps", name == "engineSiLUMul"
	signature := "(dst *float32, x *float32, n int)"
	if product {
		signature = "(dst *float32, x *float32, y *float32, n int)"
	}
	begin(name+v.tier, signature)
	dst, px, n := param("dst"), param("x"), param("n")
	pointers := []reg.GPVirtual{dst, px}
	var py reg.GPVirtual
	if product {
		py = param("y")
		pointers = append(pointers, py)
	}
	// Twelve registers for the work, the rest for constants.
	held := map[Mem]int{}
	hold := []Mem{c.low, c.high, c.invLn2, c.shift}
	if v.lanes == 16 {
		hold = append(hold, c.ln2, c.quarter, c.terms[0], c.terms[1], c.terms[2], c.terms[3], c.one, c.sign, c.bias)
	}
	for i, m := range hold {
		held[m] = 12 + i
		VMOVUPS(m, v.reg[12+i])
	}
	v.each("loop", map[int]int{8: 2, 16: 4}[v.lanes], n, pointers, func(s step) {
		constant := func(m Mem) Op {
			if i, ok := held[m]; ok {
				return s.reg[i]
			}
			return m
		}
		all := func(f func(u int, t, k, p reg.VecPhysical)) {
			for u := range s.unroll {
				f(u, s.reg[3*u], s.reg[3*u+1], s.reg[3*u+2])
			}
		}
		all(func(u int, t, k, p reg.VecPhysical) { VMOVUPS(Mem{Base: px, Disp: u * s.bytes()}, t) })
		if silu {
			all(func(u int, t, k, p reg.VecPhysical) { VXORPS(constant(c.sign), t, t) })
		}
		all(func(u int, t, k, p reg.VecPhysical) { VMAXPS(t, s.reg[held[c.low]], t) }) // keeps a NaN, being the second source
		all(func(u int, t, k, p reg.VecPhysical) { VMINPS(t, s.reg[held[c.high]], t) })
		all(func(u int, t, k, p reg.VecPhysical) { VMULPS(constant(c.invLn2), t, k) })
		all(func(u int, t, k, p reg.VecPhysical) { VADDPS(constant(c.shift), k, k) })
		all(func(u int, t, k, p reg.VecPhysical) { VSUBPS(constant(c.shift), k, k) })
		all(func(u int, t, k, p reg.VecPhysical) { VFNMADD231PS(constant(c.ln2), k, t) })
		all(func(u int, t, k, p reg.VecPhysical) { VMULPS(constant(c.quarter), t, t) })
		all(func(u int, t, k, p reg.VecPhysical) { VMOVUPS(constant(c.terms[0]), p) })
		for _, m := range c.terms[1:] {
			all(func(u int, t, k, p reg.VecPhysical) { VFMADD213PS(constant(m), t, p) })
		}
		for range 2 {
			all(func(u int, t, k, p reg.VecPhysical) { VMULPS(p, p, p) })
		}
		all(func(u int, t, k, p reg.VecPhysical) { VCVTPS2DQ(k, k) })
		all(func(u int, t, k, p reg.VecPhysical) { VPADDD(constant(c.bias), k, k) })
		all(func(u int, t, k, p reg.VecPhysical) { VPSLLD(Imm(23), k, k) })
		all(func(u int, t, k, p reg.VecPhysical) { VMULPS(p, k, p) })
		if silu {
			all(func(u int, t, k, p reg.VecPhysical) { VADDPS(constant(c.one), p, p) })
			all(func(u int, t, k, p reg.VecPhysical) { VMOVUPS(Mem{Base: px, Disp: u * s.bytes()}, t) })
			all(func(u int, t, k, p reg.VecPhysical) { VDIVPS(p, t, p) })
		}
		if product {
			all(func(u int, t, k, p reg.VecPhysical) { VMULPS(Mem{Base: py, Disp: u * s.bytes()}, p, p) })
		}
		all(func(u int, t, k, p reg.VecPhysical) { VMOVUPS(p, Mem{Base: dst, Disp: u * s.bytes()}) })
	})
	end()
}
