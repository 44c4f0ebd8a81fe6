package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// softmax emits what computes with Exp of package kernel: the same operations in the same order. Lengths are multiples of
// eight and not 0, and sums have eight lanes of float64.
func softmax() {
	c := newExp64()
	for _, v := range []vectors{avx2, avx512} {
		c.sumExp(v)
		c.softmaxExp(v)
		c.exponentsAndSums(v)
		c.exps(v, false)
		c.exps(v, true)
		c.divergence(v)
		c.silu(v)
		exactScale(v)
	}
}

// exp64 holds the constants of Exp.
type exp64 struct {
	lowest, cut, half, one, log2e, ln2Hi, ln2Lo, zero, infinity, minus, plus, sign, least, most Mem
	terms                                                                                       []Mem
	bias                                                                                        Mem
}

func newExp64() *exp64 {
	double := func(name string, v float64) Mem {
		b := math.Float64bits(v)
		m := GLOBL(name, RODATA|NOPTR)
		for i := range 4 {
			DATA(8*i, U64(b))
		}
		return m
	}
	const ln2Hi = 0x1.62e42feep-1
	c := &exp64{
		lowest: double("expLowest", -700), cut: double("expCut", -60), half: double("expHalf", 0.5), one: double("expOne", 1),
		log2e: double("expLog2E", math.Log2E), ln2Hi: double("expLn2Hi", ln2Hi), ln2Lo: double("expLn2Lo", math.Ln2-ln2Hi),
		zero: double("expZero", 0), infinity: double("expInfinity", math.Inf(1)), sign: double("expSign", math.Copysign(0, -1)),
		minus: double("expMinus", -700), plus: double("expPlus", 700), least: double("expLeast", -746), most: double("expMost", 710),
		bias: words("expBias", repeat(1023, 4)...),
	}
	for i, v := range []float64{
		1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
		1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2,
	} {
		c.terms = append(c.terms, double("expTerm"+string(rune('a'+i)), v))
	}
	return c
}

// doubles are registers of float64 that compute together: n of v. Operations take three cycles and two of a kind start in
// one, so that six registers keep the units busy.
type doubles struct {
	v vectors
	n int
	// spill is memory for the exponents of 512-bit registers, of which there are too few.
	spill Mem
}

// Registers of the i-th: arg becomes what rounding took from r, square is r*r, and exp and odd are the two halves of the
// polynomial. The exponent shares its register with square until that is computed, except in 256-bit code.
func (d doubles) arg(i int) reg.VecPhysical    { return d.v.reg[d.index(i)] }
func (d doubles) r(i int) reg.VecPhysical      { return d.v.reg[d.index(i)+1] }
func (d doubles) square(i int) reg.VecPhysical { return d.v.reg[d.index(i)+2] }
func (d doubles) odd(i int) reg.VecPhysical    { return d.v.reg[d.index(i)+3] }
func (d doubles) exp(i int) reg.VecPhysical    { return d.v.reg[d.p(i)] }
func (d doubles) k(i int) reg.VecPhysical {
	if d.v.lanes == 16 {
		return d.square(i)
	}
	return d.v.reg[d.index(i)+5]
}

// p is the number of the register exp.
func (d doubles) p(i int) int { return d.index(i) + 4 }

func (d doubles) index(i int) int {
	if d.v.lanes == 16 {
		return 5 * i
	}
	return 6 * i
}

// bytes of float32 for one register.
func (d doubles) bytes() int { return 2 * d.v.lanes }

func (d doubles) at(p reg.GPVirtual, i int) Mem { return Mem{Base: p, Disp: i * d.bytes()} }

func (d doubles) all(f func(i int)) {
	for i := range d.n {
		f(i)
	}
}

// widen loads float32.
func (d doubles) widen(p reg.GPVirtual, to func(i int) reg.VecPhysical) {
	d.all(func(i int) { VCVTPS2PD(d.at(p, i), to(i)) })
}

// narrow stores exp, rounded to float32.
func (d doubles) narrow(p reg.GPVirtual) {
	d.all(func(i int) { narrow(d.v, d.p(i)) })
	d.all(func(i int) { storeNarrow(d.v, d.p(i), d.at(p, i)) })
}

// doubleLoops walks over n float32: with 512-bit registers 48, 16 and then eight at a time, otherwise eight.
func doubleLoops(v vectors, n reg.GPVirtual, pointers []reg.GPVirtual, body func(d doubles)) {
	sizedLoops(v, n, pointers, []int{6, 2, 1}, body)
}

// sizedLoops walks with that many 512-bit registers at a time.
func sizedLoops(v vectors, n reg.GPVirtual, pointers []reg.GPVirtual, sizes []int, body func(d doubles)) {
	var spill Mem
	if v.lanes == 16 {
		spill = AllocLocal(sizes[0] * 64)
	} else {
		sizes = []int{2}
	}
	for _, size := range sizes {
		d := doubles{v, size, spill}
		loop := "loop" + string(rune('0'+d.n))
		size *= v.lanes / 2
		Label(loop)
		CMPQ(n, U32(size))
		JLT(LabelRef(loop + "done"))
		body(d)
		for _, p := range pointers {
			ADDQ(U32(4*size), p)
		}
		SUBQ(U32(size), n)
		JMP(LabelRef(loop))
		Label(loop + "done")
	}
}

// sum is part i of the eight sums, after the registers of doubles.
func sum(v vectors, i int) reg.VecPhysical {
	if v.lanes == 16 {
		return z[30]
	}
	return y[12+i]
}

// number is a parameter of a kernel. 256-bit code keeps up to two in registers.
type number struct {
	at Mem
	in reg.VecPhysical
}

func newNumber(v vectors, name string, at, i int) number {
	n := number{NewParamAddr(name, at), y[14+i]}
	if v.lanes == 8 {
		VBROADCASTSD(n.at, n.in)
	}
	return n
}

// number is an operand that holds the parameter in all lanes, until the next constant.
func (d doubles) number(n number) Op {
	if d.v.lanes == 16 {
		return d.constant(n.at)
	}
	return n.in
}

// constant is an operand that holds c in all lanes, until the next.
func (d doubles) constant(c Mem) Op {
	if d.v.lanes == 16 {
		VBROADCASTSD(c, z[31])
		return z[31]
	}
	return c
}

// termsAbove computes terms of exponentials of the arguments that load brings, 0 for arguments below the limit.
func (c *exp64) termsAbove(d doubles, limit Mem, load, term func()) {
	load()
	if d.v.lanes == 16 {
		o := d.constant(limit)
		d.all(func(i int) { VCMPPD(U8(21), o, d.arg(i), k[1+i]) })
		c.exponentials(d)
		term()
		d.all(func(i int) { VMOVAPD_Z(d.exp(i), k[1+i], d.exp(i)) })
		return
	}
	// There is no register to keep a mask in.
	c.exponentials(d)
	term()
	load()
	d.all(func(i int) { VCMPPD(U8(21), limit, d.arg(i), d.square(i)) })
	d.all(func(i int) { VANDPD(d.square(i), d.exp(i), d.exp(i)) })
}

// exponentials turns the arguments, between -700 and 700 or of no interest, into exponentials.
func (c *exp64) exponentials(d doubles) { c.scaled(d, false) }

// scaled turns arguments into exponentials, which with subnormal may be subnormal or infinite.
func (c *exp64) scaled(d doubles, subnormal bool) {
	o := d.constant(c.log2e)
	d.all(func(i int) { VMULPD(o, d.arg(i), d.k(i)) })
	o = d.constant(c.half)
	d.all(func(i int) { VADDPD(o, d.k(i), d.k(i)) })
	d.all(func(i int) { // down
		if d.v.lanes == 16 {
			VRNDSCALEPD(U8(9), d.k(i), d.k(i))
		} else {
			VROUNDPD(U8(9), d.k(i), d.k(i))
		}
	})
	o = d.constant(c.ln2Hi) // an exact product, so that fusing changes nothing
	d.all(func(i int) { VFNMADD231PD(o, d.k(i), d.arg(i)) })
	o = d.constant(c.ln2Lo)
	d.all(func(i int) { VMULPD(o, d.k(i), d.exp(i)) })
	if d.v.lanes == 16 {
		d.all(func(i int) { VMOVUPD(d.k(i), d.spill.Offset(64*i)) })
	}
	d.all(func(i int) { VSUBPD(d.exp(i), d.arg(i), d.r(i)) })
	d.all(func(i int) { VMULPD(d.r(i), d.r(i), d.square(i)) })
	d.all(func(i int) { VSUBPD(d.r(i), d.arg(i), d.arg(i)) })
	d.all(func(i int) { VSUBPD(d.exp(i), d.arg(i), d.arg(i)) })
	o = d.constant(c.terms[0])
	d.all(func(i int) { VMULPD(o, d.square(i), d.odd(i)) })
	o = d.constant(c.terms[1])
	d.all(func(i int) { VMULPD(o, d.square(i), d.exp(i)) })
	for j := 2; j < len(c.terms); j += 2 {
		if j > 2 {
			d.all(func(i int) { VMULPD(d.square(i), d.odd(i), d.odd(i)) })
			d.all(func(i int) { VMULPD(d.square(i), d.exp(i), d.exp(i)) })
		}
		o = d.constant(c.terms[j])
		d.all(func(i int) { VADDPD(o, d.odd(i), d.odd(i)) })
		o = d.constant(c.terms[j+1])
		d.all(func(i int) { VADDPD(o, d.exp(i), d.exp(i)) })
	}
	d.all(func(i int) { VMULPD(d.r(i), d.odd(i), d.odd(i)) })
	d.all(func(i int) { VADDPD(d.odd(i), d.exp(i), d.exp(i)) })
	d.all(func(i int) { VMULPD(d.square(i), d.exp(i), d.exp(i)) })
	d.all(func(i int) { VADDPD(d.arg(i), d.exp(i), d.exp(i)) })
	d.all(func(i int) { VADDPD(d.exp(i), d.r(i), d.exp(i)) })
	o = d.constant(c.one)
	d.all(func(i int) { VADDPD(o, d.exp(i), d.exp(i)) })
	d.all(func(i int) {
		if d.v.lanes == 16 {
			VSCALEFPD(d.spill.Offset(64*i), d.exp(i), d.exp(i))
			return
		}
		low := x[d.index(i)+5]
		VCVTPD2DQY(d.k(i), low)
		if subnormal { // in two steps, of which the first is exact
			first := x[d.index(i)+3]
			VPSRAD(U8(1), low, first)
			VPSUBD(first, low, low)
			VPADDD(c.bias, first, first)
			VPMOVZXDQ(first, d.odd(i))
			VPSLLQ(U8(52), d.odd(i), d.odd(i))
			VMULPD(d.odd(i), d.exp(i), d.exp(i))
		}
		VPADDD(c.bias, low, low)
		VPMOVZXDQ(low, d.k(i))
		VPSLLQ(U8(52), d.k(i), d.k(i))
		VMULPD(d.k(i), d.exp(i), d.exp(i))
	})
}

// lanes are the sums of eight lanes in memory.
type lanes struct {
	v vectors
	p reg.GPVirtual
}

func (l lanes) load() {
	for i := range 16 / l.v.lanes {
		VMOVUPD(Mem{Base: l.p, Disp: i * l.v.bytes()}, sum(l.v, i))
	}
}

// add adds register i of a step.
func (l lanes) add(i int, r reg.VecPhysical) {
	acc := sum(l.v, i%(16/l.v.lanes))
	VADDPD(r, acc, acc)
}

func (l lanes) store() {
	for i := range 16 / l.v.lanes {
		VMOVUPD(sum(l.v, i), Mem{Base: l.p, Disp: i * l.v.bytes()})
	}
}

// sumExp adds exp((x-top)*scale).
func (c *exp64) sumExp(v vectors) {
	begin("sumExp"+v.tier, "(lanes *float64, x *float32, n int, top float64, scale float64)")
	sums, px, n := lanes{v, param("lanes")}, param("x"), param("n")
	top, scale := newNumber(v, "top", 24, 0), newNumber(v, "scale", 32, 1)
	sums.load()
	doubleLoops(v, n, []reg.GPVirtual{px}, func(d doubles) {
		c.termsAbove(d, c.lowest, func() {
			d.widen(px, d.arg)
			o := d.number(top)
			d.all(func(i int) { VSUBPD(o, d.arg(i), d.arg(i)) })
			o = d.number(scale)
			d.all(func(i int) { VMULPD(o, d.arg(i), d.arg(i)) })
		}, func() {})
		d.all(func(i int) { sums.add(i, d.exp(i)) })
	})
	sums.store()
	end()
}

// softmaxExp replaces x by exp(x-top) in float32 and adds that.
func (c *exp64) softmaxExp(v vectors) {
	begin("softmaxExp"+v.tier, "(lanes *float64, x *float32, n int, top float64)")
	sums, px, n := lanes{v, param("lanes")}, param("x"), param("n")
	top := newNumber(v, "top", 24, 0)
	sums.load()
	doubleLoops(v, n, []reg.GPVirtual{px}, func(d doubles) {
		c.termsAbove(d, c.lowest, func() {
			d.widen(px, d.arg)
			o := d.number(top)
			d.all(func(i int) { VSUBPD(o, d.arg(i), d.arg(i)) })
		}, func() {})
		d.narrow(px)
		d.all(func(i int) {
			if v.lanes == 16 {
				VCVTPS2PD(half.reg[d.p(i)], d.exp(i))
			} else {
				VCVTPS2PD(x[d.p(i)], d.exp(i))
			}
		})
		d.all(func(i int) { sums.add(i, d.exp(i)) })
	})
	sums.store()
	end()
}

// exponentsAndSums writes exp(x-top) in float32 to dst, adds that to rounded, and exp(x-top) as it is to lanes.
func (c *exp64) exponentsAndSums(v vectors) {
	begin("exponentsAndSums"+v.tier, "(lanes *float64, rounded *float64, dst *float32, x *float32, n int, top float64)")
	sums, rounded, dst, px, n := lanes{v, param("lanes")}, param("rounded"), param("dst"), param("x"), param("n")
	// The sums of rounded take the registers that numbers have elsewhere.
	wide := []reg.VecPhysical{z[29]}
	top := NewParamAddr("top", 40)
	if v.lanes == 8 {
		wide = []reg.VecPhysical{y[14], y[15]}
		VBROADCASTSD(top, y[14])
		top = AllocLocal(32)
		VMOVUPD(y[14], top)
	}
	sums.load()
	for i, r := range wide {
		VMOVUPD(Mem{Base: rounded, Disp: i * v.bytes()}, r)
	}
	sizedLoops(v, n, []reg.GPVirtual{dst, px}, []int{5, 2, 1}, func(d doubles) {
		c.termsAbove(d, c.lowest, func() {
			d.widen(px, d.arg)
			o := d.constant(top)
			d.all(func(i int) { VSUBPD(o, d.arg(i), d.arg(i)) })
		}, func() {})
		d.all(func(i int) { sums.add(i, d.exp(i)) })
		d.narrow(dst)
		d.all(func(i int) {
			if v.lanes == 16 {
				VCVTPS2PD(half.reg[d.p(i)], d.exp(i))
			} else {
				VCVTPS2PD(x[d.p(i)], d.exp(i))
			}
			acc := wide[i%len(wide)]
			VADDPD(d.exp(i), acc, acc)
		})
	})
	sums.store()
	for i, r := range wide {
		VMOVUPD(r, Mem{Base: rounded, Disp: i * v.bytes()})
	}
	end()
}

// exps writes exp(x-shift) in float64, for all numbers; the wide one replaces numbers in float64.
func (c *exp64) exps(v vectors, wide bool) {
	name, signature := "exps"+v.tier, "(dst *float64, x *float32, n int, shift float64)"
	if wide {
		name, signature = "expsWide"+v.tier, "(x *float64, n int)"
	}
	begin(name, signature)
	px := param("x")
	n, dst, pointers := param("n"), px, []reg.GPVirtual{px, px}
	var shift number
	if !wide {
		dst, shift = param("dst"), newNumber(v, "shift", 24, 0)
		pointers = []reg.GPVirtual{dst, dst, px}
	}
	doubleLoops(v, n, pointers, func(d doubles) {
		if wide {
			d.all(func(i int) { VMOVUPD(Mem{Base: px, Disp: 2 * i * d.bytes()}, d.arg(i)) })
		} else {
			d.widen(px, d.arg)
			o := d.number(shift)
			d.all(func(i int) { VSUBPD(o, d.arg(i), d.arg(i)) })
		}
		// Of a NaN and a number, VMAXPD and VMINPD return their first operand here.
		for _, bound := range []struct {
			at   Mem
			clip func(ops ...Op)
		}{{c.least, VMAXPD}, {c.most, VMINPD}} {
			if v.lanes == 16 {
				o := d.constant(bound.at)
				d.all(func(i int) { bound.clip(d.arg(i), o, d.arg(i)) })
				continue
			}
			d.all(func(i int) {
				VMOVUPD(bound.at, d.r(i))
				bound.clip(d.arg(i), d.r(i), d.arg(i))
			})
		}
		c.scaled(d, true)
		d.all(func(i int) { VMOVUPD(d.exp(i), Mem{Base: dst, Disp: 2 * i * d.bytes()}) })
	})
	end()
}

// divergence adds exp(p-norm)*((p-q)+shift), without the terms where p-norm is below the cut.
func (c *exp64) divergence(v vectors) {
	begin("divergence"+v.tier, "(lanes *float64, p *float32, q *float32, n int, norm float64, shift float64)")
	sums, pp, pq, n := lanes{v, param("lanes")}, param("p"), param("q"), param("n")
	norm, shift := newNumber(v, "norm", 32, 0), newNumber(v, "shift", 40, 1)
	sums.load()
	doubleLoops(v, n, []reg.GPVirtual{pp, pq}, func(d doubles) {
		c.termsAbove(d, c.cut, func() {
			d.widen(pp, d.arg)
			o := d.number(norm)
			d.all(func(i int) { VSUBPD(o, d.arg(i), d.arg(i)) })
		}, func() {
			d.widen(pp, d.arg)
			d.widen(pq, d.odd)
			d.all(func(i int) { VSUBPD(d.odd(i), d.arg(i), d.odd(i)) })
			o := d.number(shift)
			d.all(func(i int) { VADDPD(o, d.odd(i), d.odd(i)) })
			d.all(func(i int) { VMULPD(d.odd(i), d.exp(i), d.exp(i)) })
		})
		d.all(func(i int) { sums.add(i, d.exp(i)) })
	})
	sums.store()
	end()
}

// silu writes x / (1 + exp(-x)).
func (c *exp64) silu(v vectors) {
	begin("exactSiLU"+v.tier, "(dst *float32, x *float32, n int)")
	dst, px, n := param("dst"), param("x"), param("n")
	doubleLoops(v, n, []reg.GPVirtual{dst, px}, func(d doubles) {
		d.widen(px, d.arg)
		o := d.constant(c.sign)
		d.all(func(i int) { VXORPD(o, d.arg(i), d.arg(i)) })
		c.exponentials(d)
		d.widen(px, d.arg)
		// Beyond 700 the exponential is too large, or too small, to change the quotient.
		for _, far := range []struct {
			limit     Mem
			predicate uint8
			value     Mem
		}{{c.minus, 17, c.infinity}, {c.plus, 30, c.zero}} { // less, greater
			o := d.constant(far.limit)
			if v.lanes == 16 {
				d.all(func(i int) { VCMPPD(U8(far.predicate), o, d.arg(i), k[1+i]) })
				d.all(func(i int) { VBROADCASTSD(far.value, k[1+i], d.exp(i)) })
				continue
			}
			d.all(func(i int) {
				VCMPPD(U8(far.predicate), o, d.arg(i), d.square(i))
				VBLENDVPD(d.square(i), far.value, d.exp(i), d.exp(i))
			})
		}
		o = d.constant(c.one)
		d.all(func(i int) { VADDPD(o, d.exp(i), d.exp(i)) })
		d.all(func(i int) { VDIVPD(d.exp(i), d.arg(i), d.exp(i)) })
		d.narrow(dst)
	})
	end()
}

// exactScale multiplies in float64.
func exactScale(v vectors) {
	begin("exactScale"+v.tier, "(dst *float32, x *float32, n int, scale float64)")
	dst, px, n := param("dst"), param("x"), param("n")
	scale := newNumber(v, "scale", 24, 0)
	doubleLoops(v, n, []reg.GPVirtual{dst, px}, func(d doubles) {
		d.widen(px, d.exp)
		o := d.number(scale)
		d.all(func(i int) { VMULPD(o, d.exp(i), d.exp(i)) })
		d.narrow(dst)
	})
	end()
}
